//go:build linux

package inside

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

// This file provides the files that apt and dpkg need besides programs, on hosts that have them:
// the installed packages, the sources of others, and the trusted keys. The lists and archives
// themselves start empty.

// aptDirectories are the directories that apt does not make itself.
var aptDirectories = []string{
	"/etc/apt", "/etc/apt/apt.conf.d", "/etc/apt/keyrings", "/etc/apt/preferences.d", "/etc/apt/sources.list.d", "/etc/apt/trusted.gpg.d",
	"/var/cache/apt", "/var/cache/apt/archives", "/var/cache/apt/archives/partial", "/var/cache/debconf", "/var/lib/apt", "/var/lib/apt/lists",
	"/var/lib/apt/lists/partial", "/var/log/apt",
}

// aptFiles are the host's sources, keys and preferences. The host's apt.conf and auth.conf
// are not copied, because they may contain passwords and hooks.
var aptFiles = []string{
	"/etc/apt/keyrings/*", "/etc/apt/preferences", "/etc/apt/preferences.d/*", "/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list",
	"/etc/apt/sources.list.d/*.sources", "/etc/apt/trusted.gpg", "/etc/apt/trusted.gpg.d/*",
}

// aptConf makes apt download as root. By default, apt downloads as another user, to protect root from
// malicious data from the network. Root of a sandbox does not need this protection, and the other
// user could not read packages in a home directory.
const aptConf = `APT::Sandbox::User "root";
`

// debconfConf is the configuration of debconf. It names the files that store the answers to questions
// of packages; the questions themselves are never asked.
const debconfConf = `Config: configdb
Templates: templatedb

Name: configdb
Driver: File
Mode: 600
Filename: /var/cache/debconf/config.dat

Name: templatedb
Driver: File
Mode: 644
Filename: /var/cache/debconf/templates.dat
`

// hasPassword reports whether text contains an address with a user, and therefore perhaps a password.
func hasPassword(text []byte) bool {
	for {
		_, rest, found := bytes.Cut(text, []byte("://"))
		if !found {
			return false
		}
		if end := bytes.IndexAny(rest, "@/ \t\n"); end >= 0 && rest[end] == '@' {
			return true
		}
		text = rest
	}
}

// writeApt fills the part of the skeleton that apt and dpkg read. With a single id, apt and dpkg can
// list packages but cannot install any, because the files to change belong to the host's root.
func writeApt(ranged bool) error {
	if !ranged || !exists(guest.PackageTree) {
		return nil
	}
	for _, dir := range aptDirectories {
		if err := os.Mkdir("root"+dir, 0o755); err != nil {
			return err
		}
	}
	for _, pattern := range aptFiles {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := copyAptFile(name); err != nil {
				return fmt.Errorf("copy %s: %w", name, err)
			}
		}
	}
	return errors.Join(
		os.WriteFile("root/etc/apt/apt.conf.d/50sandbox", []byte(aptConf), 0o644),
		os.WriteFile("root/etc/debconf.conf", []byte(debconfConf), 0o644),
	)
}

// copyAptFile copies a file of /etc/apt. It does not copy a file in which an address has a
// password; such a source is not available inside.
func copyAptFile(name string) error {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || err == nil && (!info.Mode().IsRegular() || info.Size() > maxCopied) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrPermission) || hasPassword(text) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile("root"+name, text, 0o644)
}

// openDpkg writes to the upper directory of dpkgTree. The host's packages have overrides of owners
// and modes for accounts that do not exist inside. dpkg refuses all work if an override names an
// unknown account.
func openDpkg(upper string) error {
	return os.WriteFile(filepath.Join(upper, "statoverride"), nil, 0o644)
}
