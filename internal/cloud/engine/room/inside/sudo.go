//go:build linux

package inside

import (
	"os"
	"path/filepath"
)

// sudoScript replaces sudo for commands written for the service. On the service, user may become
// root without a password. The script is used if the host has no sudo. It is also used if root and
// user have the same id, because sudo refuses that. It has sudo's options, and sets the variables
// that sudo sets. Unlike sudo, it keeps all other variables, because programs need the variables of
// the proxy and the certificates.
const sudoScript = `#!/bin/sh
target=root command= login= shell= keep= home= dir= given=' ' forget=
option() {
	case $1 in
	i) login=1 ;;
	s) shell=1 ;;
	E) keep=1 ;;
	H) home=1 ;;
	k) forget=1 ;;
	v | K | l) exit 0 ;;
	esac
}
argument() {
	case $1 in
	u) target=$2 ;;
	D) dir=$2 ;;
	esac
}
while [ $# -gt 0 ]; do
	case $1 in
	--) shift; break ;;
	--login) option i ;;
	--shell) option s ;;
	--preserve-env) option E ;;
	--preserve-env=*) case ,${1#*=}, in *,HOME,*) option E ;; esac ;;
	--set-home) option H ;;
	--reset-timestamp) option k ;;
	--validate | --list | --remove-timestamp) exit 0 ;;
	--user=*) argument u "${1#*=}" ;;
	--chdir=*) argument D "${1#*=}" ;;
	--user | --chdir | --group | --prompt | --host | --close-from | --command-timeout | --chroot)
		case $1 in --user) argument u "$2" ;; --chdir) argument D "$2" ;; esac
		[ $# -lt 2 ] || shift ;;
	--*) ;;
	-?*)
		rest=${1#-}
		while [ -n "$rest" ]; do
			tail=${rest#?} letter=${rest%"${rest#?}"} rest=${rest#?}
			case $letter in
			[uDCghpRTUrt])
				if [ -z "$tail" ] && [ $# -gt 1 ]; then shift; tail=$1; fi
				argument "$letter" "$tail"
				rest= ;;
			*) option "$letter" ;;
			esac
		done ;;
	*=*)
		case ${1%%=*} in '' | [0-9]* | *[!A-Za-z0-9_]*) break ;; esac
		export "$1"
		given="$given${1%%=*} " ;;
	*) break ;;
	esac
	shift
done
entry=$(getent passwd "${target#\#}") || { echo "sudo: unknown user $target" >&2; exit 1; }
user=${entry%%:*} program=${entry##*:} entry=${entry%:*}
into=${entry##*:}
[ -z "$shell" ] || program=${SHELL:-$program}
[ -z "$keep" ] || [ -n "$home$login" ] || given="${given}HOME "
set_variable() { case $given in *" $1 "*) ;; *) export "$1=$2" ;; esac; }
set_variable HOME "$into"
set_variable USER "$user"
set_variable LOGNAME "$user"
if [ -n "$login" ]; then set_variable SHELL "$program"; fi
export SUDO_USER="$(id -un)" SUDO_UID="$(id -u)" SUDO_GID="$(id -g)" SUDO_COMMAND="${*:-$program}"
if [ -n "$dir" ]; then cd "$dir" || exit 1; fi
if [ -n "$login$shell" ]; then
	# The shell expands variables in the words of the command, and nothing else in them.
	for word; do
		command="$command $(printf '%s\n' "$word" | sed -e 's/[^A-Za-z0-9_$-]/\\&/g' -e '$!s/$/\\/')"
	done
	set -- "$program" ${login:+-l} ${command:+-c "$command"}
	if [ -n "$login" ] && [ -z "$dir" ]; then set -- /bin/sh -c 'cd "$0" && exec "$@"' "$into" "$@"; fi
elif [ $# = 0 ]; then
	[ -n "$forget" ] && exit 0
	echo 'usage: sudo [-EHins] [-u user] [-D directory] [VAR=value] [command]' >&2
	exit 1
fi
[ "$(id -u)" = "$(id -u "$user")" ] && exec "$@"
exec su -p -s /bin/sh -c 'exec "$0" "$@"' -- "$user" "$@"
`

// addSudo puts the script into the upper directory of /usr before the overlay is mounted. In the
// mounted overlay, only the owners of the lower files may write.
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
