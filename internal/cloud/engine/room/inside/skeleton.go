//go:build linux

package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest/login"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// copiedFiles are files of the host's /etc. Because the sandbox has the host's /usr, programs need
// these files to start, to find libraries, to compute the local time, and to choose matching
// packages. None of these files contains a secret. Missing files are left out.
var copiedFiles = []string{
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d/*.conf", "/etc/localtime", "/etc/mime.types",
	"/etc/protocols", "/etc/services", "/etc/ssl/openssl.cnf",
	"/etc/os-release", "/etc/lsb-release", "/etc/debian_version", "/etc/redhat-release", "/etc/alpine-release",
}

// deviceLinks are the links in /dev.
var deviceLinks = map[string]string{
	"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1",
	"/dev/stderr": "/proc/self/fd/2", "/dev/ptmx": "pts/ptmx",
}

// maxCopied bounds the bytes of one copied file.
const maxCopied = 4 << 20

// writeSkeleton fills the directory named root in the staging directory with the files that belong
// neither to a tree nor to a kernel file system.
func writeSkeleton(spec *wire.InitSpec) error {
	for _, d := range guest.Directories {
		if d.Path == guest.RootHome && slices.ContainsFunc(spec.Trees, func(tree string) bool { return strings.HasPrefix(tree, guest.RootHome+"/") }) {
			d.Mode |= 0o011 // programs that user runs may be below it, for instance a Python of the host's root
		}
		if err := os.Mkdir("root"+d.Path, d.Mode); err != nil {
			return err
		}
	}
	links := map[string]string{"/etc/mtab": "/proc/self/mounts", "/var/run": "/run", "/var/lock": "/run/lock"}
	for _, more := range []map[string]string{deviceLinks, spec.Links} {
		maps.Copy(links, more)
	}
	for name, target := range links {
		if err := os.Symlink(target, "root"+name); err != nil {
			return err
		}
	}
	for _, pattern := range copiedFiles {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := copyFile(name, "root"+name); err != nil {
				return fmt.Errorf("copy %s: %w", name, err)
			}
		}
	}
	for name, f := range etc(spec) {
		if err := os.WriteFile("root"+name, []byte(f.text), f.mode); err != nil {
			return err
		}
	}
	return errors.Join(writeApt(spec.Ranged), writeHomes(spec.Ranged))
}

// homeFiles are the files of a new home. /etc/skel has them, too.
var homeFiles = map[string]string{".bashrc": login.UserBashrc, ".profile": login.UserProfile, ".bash_logout": login.UserLogout}

func writeHomes(ranged bool) error {
	for _, home := range []string{"/etc/skel", guest.RootHome, guest.UserHome} {
		owned := []string{"root" + home}
		for name, text := range homeFiles {
			path := filepath.Join("root"+home, name)
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
			owned = append(owned, path)
		}
		if home != guest.UserHome || !ranged {
			continue
		}
		for _, path := range owned {
			if err := os.Chown(path, protocol.UserID, protocol.UserID); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyFile copies the file at the path from, and follows links. It leaves out a file that this
// process is not permitted to read.
func copyFile(from, to string) error {
	f, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxCopied {
		return fmt.Errorf("not a regular file of at most %d bytes", maxCopied)
	}
	w, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = w.ReadFrom(f)
	return errors.Join(err, w.Close())
}

type file struct {
	text string
	mode fs.FileMode
}

// accountLines returns the lines of root and user in /etc/passwd and in /etc/group. id is the user's id.
func accountLines(id string) (accounts, groups []string) {
	return []string{"root:x:0:0:root:" + guest.RootHome + ":" + guest.LoginShell, "user:x:" + id + ":" + id + "::" + guest.UserHome + ":" + guest.LoginShell},
		[]string{"root:x:0:", "user:x:" + id + ":"}
}

// etc returns the files of /etc with our own content.
func etc(spec *wire.InitSpec) map[string]file {
	accounts, own := accountLines(strconv.Itoa(protocol.UserID))
	if !spec.Ranged {
		// The single id has two names. whoami and ls show the first, so it must be the default
		// account of commands.
		accounts, own = accountLines("0")
		slices.Reverse(accounts)
		slices.Reverse(own)
	}
	passwd := withSystem(accounts, "passwd", "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin", "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin")
	group := withSystem(append(own, "sudo:x:27:user"), "group", "daemon:x:1:", "tty:x:5:", "disk:x:6:", "mail:x:8:", "staff:x:50:", "nogroup:x:65534:")
	return map[string]file{
		"/etc/passwd": {passwd, 0o644},
		"/etc/group":  {group, 0o644},
		"/etc/shadow": {"root::19000:0:99999:7:::\nuser::19000:0:99999:7:::\n", 0o640},
		// The server answers for every name server.
		"/etc/resolv.conf":        {"nameserver " + listenerAddress.String() + "\n", 0o644},
		"/etc/nsswitch.conf":      {"passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n", 0o644},
		"/etc/host.conf":          {"multi on\n", 0o644},
		"/etc/shells":             {"/bin/sh\n/bin/bash\n", 0o644},
		"/etc/profile":            {login.Profile(login.PlainProfile), 0o644},
		login.PathFile:            {login.PathText(spec.Path), 0o644},
		"/etc/bash.bashrc":        {login.SystemBashrc, 0o644},
		"/etc/profile.d/shell.sh": {"export SHELL=" + guest.LoginShell + "\nexport PS1='\\w \\$ '\n", 0o644},
		"/etc/environment":        {"", 0o644},
		"/etc/login.defs":         {loginDefs(spec.Path), 0o644},
		"/etc/adduser.conf":       {"DSHELL=" + guest.LoginShell + "\nDHOME=/home\nSKEL=/etc/skel\nUSERGROUPS=yes\nDIR_MODE=0755\n", 0o644},
		"/etc/default/useradd":    {"SHELL=/bin/sh\nHOME=/home\nSKEL=/etc/skel\nCREATE_MAIL_SPOOL=no\n", 0o644},
		// user may become root without a password, as in the service: the boundary is the sandbox,
		// not the user.
		"/etc/pam.d/other": {"auth sufficient pam_permit.so\naccount sufficient pam_permit.so\npassword sufficient pam_permit.so\nsession sufficient pam_permit.so\n", 0o644},
		"/etc/sudoers":     {"Defaults !fqdn\nroot ALL=(ALL:ALL) ALL\nuser ALL=(ALL:ALL) NOPASSWD: ALL\n", 0o440},
	}
}

// withSystem adds the accounts for the distribution's packages. If the distribution has a list of
// such accounts, withSystem adds the accounts in that list. Otherwise it adds the accounts in
// otherwise. The host's own accounts are not added.
func withSystem(ours []string, name string, otherwise ...string) string {
	system := otherwise
	if text, err := os.ReadFile("/usr/share/base-passwd/" + name + ".master"); err == nil {
		system = strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	for _, line := range system {
		account, _, _ := strings.Cut(line, ":")
		if !slices.ContainsFunc(ours, func(o string) bool { return strings.HasPrefix(o, account+":") }) {
			ours = append(ours, line)
		}
	}
	return strings.Join(ours, "\n") + "\n"
}

// openLocal makes the directories of /usr/local writable for everybody, as they are on the service,
// so that npm -g and make install work without root. It does not replace links.
func openLocal(upper string) error {
	for _, dir := range []string{"", "bin", "etc", "include", "lib", "lib/node_modules", "libexec", "sbin", "share", "src"} {
		path := filepath.Join("local", dir)
		info, err := os.Lstat(filepath.Join("/usr", path))
		if err == nil && !info.IsDir() {
			if dir == "" {
				return nil
			}
			continue
		}
		if err := os.Mkdir(filepath.Join(upper, path), 0o777); err != nil {
			return err
		}
	}
	return nil
}

// writeNames writes the files that contain the sandbox's hostname and names, which are not known yet
// when its file system is made. An earlier file of another server is replaced.
func writeNames(hostname string, names map[string]netip.Addr) error {
	hosts := "127.0.0.1\tlocalhost\n127.0.1.1\t" + hostname + "\n::1\tip6-localhost ip6-loopback\n"
	for _, name := range slices.Sorted(maps.Keys(names)) {
		hosts += names[name].String() + "\t" + name + "\n"
	}
	return errors.Join(os.WriteFile("/etc/hostname", []byte(hostname+"\n"), 0o644), os.WriteFile("/etc/hosts", []byte(hosts), 0o644))
}

// loginDefs returns the configuration of su and of Debian's package passwd.
func loginDefs(path string) string {
	return strings.Join([]string{
		"ENV_PATH PATH=" + path, "ENV_SUPATH PATH=" + path, "UMASK 022", "USERGROUPS_ENAB yes", "ENCRYPT_METHOD SHA512", "MAIL_DIR /var/mail",
		"UID_MIN 1000", "UID_MAX 60000", "SYS_UID_MIN 100", "SYS_UID_MAX 999", "GID_MIN 1000", "GID_MAX 60000", "SYS_GID_MIN 100", "SYS_GID_MAX 999",
		"PASS_MAX_DAYS 99999", "PASS_MIN_DAYS 0", "PASS_WARN_AGE 7", "",
	}, "\n")
}
