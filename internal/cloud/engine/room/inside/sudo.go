//go:build linux

package inside

import (
	"os"
	"path/filepath"
)

// sudoScript makes commands written for the service work: there user may become
// root without a password. It is used if the host has no sudo, or if root and user
// are one id, which sudo refuses.
const sudoScript = `#!/bin/sh
user=root
while [ $# -gt 0 ]; do
	case $1 in
	-u | --user) user=$2; shift 2 ;;
	-u*) user=${1#-u}; shift ;;
	--user=*) user=${1#--user=}; shift ;;
	-[CDghpRT]) shift 2 ;;
	-v | -k | -K | -l | --validate | --list | --reset-timestamp) exit 0 ;;
	--) shift; break ;;
	-*) shift ;;
	*=*) export "$1"; shift ;;
	*) break ;;
	esac
done
[ $# -gt 0 ] || set -- /bin/bash
[ "$(id -u)" = "$(id -u "$user")" ] && exec "$@"
exec su -p -s /bin/sh -c 'exec "$0" "$@"' -- "$user" "$@"
`

// addSudo puts the script into the upper directory of /usr before the overlay is
// mounted: in the overlay only the owners of what is below may write.
func addSudo(upper string, ranged bool) error {
	if ranged && exists("/usr/bin/sudo") {
		return nil
	}
	bin := filepath.Join(upper, "local", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(bin, "sudo"), []byte(sudoScript), 0o755)
}
