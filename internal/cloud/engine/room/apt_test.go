//go:build linux

package room

import (
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

// buildPackage makes a package in the sandbox. Its scripts and files have the usual
// needs of packages: another owner, a setgid file, a link, and root's privileges.
const buildPackage = `set -e
mkdir -p p/DEBIAN p/usr/bin p/usr/share/proof p/etc/proof
printf 'Package: proof\nVersion: %s\nArchitecture: all\nMaintainer: t <t@example.com>\nDescription: a proof\n' $1 > p/DEBIAN/control
printf '#!/bin/sh\nset -e\ntest "$(id -u)" = 0\necho configured $1 >> /var/log/proof\n' > p/DEBIAN/postinst
printf '#!/bin/sh\nrm -f /var/log/proof\n' > p/DEBIAN/postrm
printf '/etc/proof/conf\n' > p/DEBIAN/conffiles
printf '#!/bin/sh\necho version %s\n' $1 > p/usr/bin/proof
echo setting > p/etc/proof/conf
echo shared > p/usr/share/proof/data
ln -sf ../share/proof/data p/usr/bin/proof-data
chmod 755 p/DEBIAN/postinst p/DEBIAN/postrm p/usr/bin/proof
chown -R 0:0 p; chown 1:5 p/usr/share/proof/data; chmod 2755 p/usr/share/proof/data
dpkg-deb --build p proof-$1.deb >/dev/null
`

// TestPackages installs, upgrades and purges a package as root, with dpkg and with
// apt.
func TestPackages(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	if !exists(guest.PackageTree) {
		t.Skip("this machine has no dpkg")
	}
	s := newSandbox(t, r, engine.SandboxOptions{})
	if got := sh(t, s, "dpkg-query -W -f '${Status}' dpkg"); got.Output != "install ok installed" {
		t.Errorf("the host's packages: %+v", got)
	}
	if !r.ids.ranged {
		// Files of the host's root cannot be changed, and dpkg reports that.
		if got := sh(t, s, "dpkg --remove --force-all bash"); got.Status == 0 || !strings.Contains(strings.ToLower(got.Output), "permission") && !strings.Contains(got.Output, "superuser") {
			t.Errorf("dpkg with one id: %+v", got)
		}
		t.Skip("a single id cannot change what belongs to the host's root")
	}
	build := "build() {\n" + buildPackage + "}\ncd /tmp; build 1; build 2\n"
	if got := sh(t, s, build); got.Status != 0 {
		t.Fatalf("%+v", got)
	}
	const show = "proof; proof-data 2>/dev/null; stat -c '%u %g %a' /usr/share/proof/data; cat /var/log/proof; readlink /usr/bin/proof-data"
	for _, tt := range []struct{ command, want string }{
		{"dpkg -i /tmp/proof-1.deb", "version 1\n1 5 2755\nconfigured configure\n../share/proof/data\n"},
		{"apt-get install -y /tmp/proof-2.deb", "version 2\n1 5 2755\nconfigured configure\n../share/proof/data\n"},
		{"apt-get purge -y proof", "no more\n"},
	} {
		if got := sh(t, s, "("+tt.command+") 2>&1"); got.Status != 0 {
			t.Fatalf("%s: %+v", tt.command, got)
		}
		if got := sh(t, s, "command -v proof >/dev/null || { ls /etc/proof /var/log/proof 2>/dev/null; echo no more; exit; }; "+show); got.Output != tt.want {
			t.Errorf("after %s: %+v, want %q", tt.command, got, tt.want)
		}
	}
	// Files of the system can be replaced too.
	if got := sh(t, s, "set -e; update-alternatives --install /usr/bin/anything anything /bin/true 1 && anything; dpkg --verify dpkg; rm -rf /usr/share/doc/dpkg"); got.Status != 0 {
		t.Errorf("%+v", got)
	}
}
