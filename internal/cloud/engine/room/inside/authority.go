//go:build linux

package inside

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

// systemBundles are the distributions' files of certificates that programs trust.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch, Alpine
	"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // target of the link above
	"/etc/ca-certificates/extracted/tls-ca-bundle.pem",  // Arch
}

// certifiBundles are patterns of the certificate files of Python packages, below a prefix of an
// installation.
var certifiBundles = []string{
	"lib/python3*/site-packages/certifi/cacert.pem", "lib/python3*/site-packages/pip/_vendor/certifi/cacert.pem",
	"lib/python3*/dist-packages/certifi/cacert.pem", "lib/python3*/dist-packages/pip/_vendor/certifi/cacert.pem",
}

// noPattern makes a path a pattern that matches this path alone.
var noPattern = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// maxBundle bounds the bytes of a file of certificates.
const maxBundle = 16 << 20

// showAuthority makes programs trust an authority in addition to the machine's authorities. The
// environment of most programs names the files with the certificates. For programs with another
// environment, or an empty environment, showAuthority mounts a file with the certificates over each
// file of certificates that these programs read. It is called in the sandbox's own root, so every
// link leads to a file of the sandbox. The mounts are not saved with the sandbox's files, because a
// sandbox made from the saved files has its own authority.
func showAuthority(certificate []byte, trees []string) error {
	system := existing(systemBundles)
	packages := existing(pythonBundles(trees))
	bundle := certificate
	if all := slices.Concat(system, packages); len(all) > 0 {
		known, err := readBundle(all[0])
		if err != nil {
			return err
		}
		bundle = slices.Concat(bytes.TrimRight(known, "\n"), []byte("\n"), certificate)
	}
	if err := os.MkdirAll(guest.AuthorityDir, 0o755); err != nil {
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("tmpfs", guest.AuthorityDir, "tmpfs", flags, fmt.Sprintf("mode=0755,size=%d,nr_inodes=16", 2*maxBundle)); err != nil {
		return fmt.Errorf("mount %s: %w", guest.AuthorityDir, err)
	}
	if err := errors.Join(os.WriteFile(guest.AuthorityFile, certificate, 0o644), os.WriteFile(guest.BundleFile, bundle, 0o644)); err != nil {
		return err
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, guest.AuthorityDir, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make %s read-only: %w", guest.AuthorityDir, err)
	}
	for _, path := range slices.Concat(system, packages) {
		if err := unix.Mount(guest.BundleFile, path, "", unix.MS_BIND, ""); err != nil { // read-only, like its source
			return fmt.Errorf("show the certificates at %s: %w", path, err)
		}
	}
	return nil
}

// pythonBundles returns the certificate files of Python packages in directories of the sandbox.
func pythonBundles(trees []string) (found []string) {
	for _, prefix := range append([]string{"/usr", "/usr/local", guest.UserHome + "/.local", guest.RootHome + "/.local"}, trees...) {
		for _, pattern := range certifiBundles {
			paths, _ := filepath.Glob(filepath.Join(noPattern.Replace(prefix), pattern)) // the pattern is well-formed
			found = append(found, paths...)
		}
	}
	return found
}

// existing resolves the links in the paths, and returns the regular files to which the paths lead. It
// returns each file once. It leaves out paths that do not lead to a regular file.
func existing(paths []string) (found []string) {
	for _, path := range paths {
		target, err := filepath.EvalSymlinks(path)
		if err != nil || slices.Contains(found, target) {
			continue
		}
		if info, err := os.Lstat(target); err == nil && info.Mode().IsRegular() {
			found = append(found, target)
		}
	}
	return found
}

func readBundle(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBundle+1))
	if err == nil && len(text) > maxBundle {
		err = fmt.Errorf("%s has more than %d bytes", path, maxBundle)
	}
	return text, err
}
