//go:build linux

package guest

import "io/fs"

// Directories are all directories of a sandbox that do not belong to a tree.
var Directories = []struct {
	Path string
	Mode fs.FileMode
}{
	{"/code", 0o777}, {"/dev", 0o755}, {"/dev/pts", 0o755}, {"/dev/shm", 0o777 | fs.ModeSticky},
	{"/etc", 0o755}, {"/etc/default", 0o755}, {"/etc/ld.so.conf.d", 0o755}, {"/etc/pam.d", 0o755}, {"/etc/profile.d", 0o755}, {"/etc/skel", 0o755}, {"/etc/ssl", 0o755},
	{"/home", 0o755}, {UserHome, 0o755}, {"/media", 0o755}, {"/mnt", 0o755}, {"/opt", 0o755}, {"/proc", 0o555},
	{RootHome, 0o700}, {"/run", 0o755}, {"/run/lock", 0o777 | fs.ModeSticky}, {"/srv", 0o755}, {"/sys", 0o555},
	{"/tmp", 0o777 | fs.ModeSticky}, {"/usr", 0o755}, {"/var", 0o755}, {"/var/cache", 0o755}, {"/var/lib", 0o755},
	{"/var/log", 0o755}, {"/var/tmp", 0o777 | fs.ModeSticky},
}

// RootLinks are symbolic links in the host's root directory. On a host without a merged /usr, they
// are directories.
var RootLinks = []string{"/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"}

// PackageTree contains the host's list of packages.
const PackageTree = "/var/lib/dpkg"

// DeviceNames are the names of the device nodes of a sandbox. Every program relies on these devices,
// and they do not give access to anything on the host.
var DeviceNames = []string{"null", "zero", "full", "random", "urandom", "tty"}

// MaxTerminals is the maximum number of pseudoterminals of a sandbox.
const MaxTerminals = 256
