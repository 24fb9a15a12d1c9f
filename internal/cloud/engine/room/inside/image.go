//go:build linux

package inside

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// This file makes the root of a sandbox of a container image. No name in the image is trusted,
// and a link in it could lead to the host until the root is this process's own. So files are made
// only in directories that are no links, and paths for reading are resolved as if root were the
// root already.

// ownDirectories contains the sandbox's own directories that replace directories of the image.
const ownDirectories = "own"

// mountImage mounts the layers of an image, with the sandbox's own devices and /sys.
func mountImage(lower []string) error {
	if err := os.Mkdir(ownDirectories, 0o755); err != nil {
		return err
	}
	if err := makeMissing(ownDirectories); err != nil {
		return err
	}
	for _, name := range []string{"dev", "proc", "sys"} { // an upper directory is shown, even over a file
		if err := os.Mkdir(filepath.Join(rootUpper, name), 0o755); err != nil {
			return err
		}
	}
	if err := mountOverlay("root", lower, rootUpper, rootWork); err != nil {
		return err
	}
	for _, name := range []string{"dev", "sys"} {
		if err := unix.Mount(filepath.Join(ownDirectories, name), filepath.Join("root", name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("show /%s: %w", name, err)
		}
	}
	return nil
}

// mendImage adds the files that envd needs to the root of an image: the accounts that run commands,
// and a directory for envd's own files.
func (b *built) mendImage(ranged bool) error {
	for _, path := range []string{runDirectory, guest.AuthorityDir} { // /run is a directory by now
		if err := os.RemoveAll("root" + path); err != nil {
			return err
		}
	}
	added, err := b.addAccounts(ranged)
	if err != nil || !added {
		return err
	}
	for path, mode := range map[string]fs.FileMode{"": 0o555, "/etc": 0o755, "/run": 0o755, "/tmp": 0o777 | fs.ModeSticky} {
		if err := openUp("root"+path, mode); err != nil {
			return err
		}
	}
	// As in the service, user may become root without a password.
	if err := replaceBeside("/etc/sudoers.d", "e2bctl", "user ALL=(ALL:ALL) NOPASSWD: ALL\n", 0o440); err != nil || ranged {
		return err
	}
	return replaceBeside("/etc/apt/apt.conf.d", "50sandbox", aptConf, 0o644) // there is no other id for fetching
}

// accountFiles are the files of /etc that contain accounts.
var accountFiles = []string{"passwd", "group", "shadow"}

// addAccounts adds root and user to the accounts of the image if they are missing. It makes the
// home directories of the added accounts, and reports whether it added an account.
func (b *built) addAccounts(ranged bool) (added bool, err error) {
	texts := make(map[string]string)
	for _, name := range accountFiles {
		text, err := readInRoot("/etc/" + name)
		if err != nil {
			return false, err
		}
		texts[name] = text
	}
	shell := guest.LoginShell
	if f, err := openInRoot(shell, unix.O_PATH); err != nil {
		shell = guest.PlainShell
	} else {
		f.Close()
	}
	accounts := []account{{"root", guest.RootHome, 0}, {"user", guest.UserHome, protocol.UserID}}
	if !ranged {
		accounts[1].id = 0
	}
	for _, a := range accounts {
		if hasAccount(texts["passwd"], a.name) {
			continue
		}
		added = true
		for name, line := range a.lines(shell) {
			if !hasAccount(texts[name], a.name) {
				texts[name] = withLine(texts[name], line, a.name == "user" && !ranged)
			}
		}
		if err := b.makeHome(a); err != nil {
			return false, fmt.Errorf("make %s: %w", a.home, err)
		}
	}
	if !added {
		return false, nil
	}
	for _, name := range accountFiles {
		if err := b.writeAccounts(name, texts[name]); err != nil {
			return false, err
		}
	}
	return true, nil
}

// account is an account that envd needs.
type account struct {
	name, home string
	id         int
}

// lines returns the account's line for each of the accountFiles.
func (a account) lines(shell string) map[string]string {
	id := strconv.Itoa(a.id)
	return map[string]string{
		"passwd": a.name + ":x:" + id + ":" + id + "::" + a.home + ":" + shell,
		"group":  a.name + ":x:" + id + ":",
		"shadow": a.name + "::19000:0:99999:7:::",
	}
}

func hasAccount(text, name string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+":") {
			return true
		}
	}
	return false
}

// withLine adds a line to text, as the first line if first is true. If several accounts have one id,
// programs show the first name. So with a single id, the default account of commands must come first.
func withLine(text, line string, first bool) string {
	if first {
		return line + "\n" + text
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + line + "\n"
}

func (b *built) writeAccounts(name, text string) error {
	const etc = "root/etc"
	mode := fs.FileMode(0o644)
	if name == "shadow" {
		mode = 0o600
	}
	path := filepath.Join(etc, name)
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		if err := openUp(path, mode); err != nil {
			return err
		}
		return os.WriteFile(path, []byte(text), mode) // it keeps its owner
	}
	if err := b.moveAside(etc, name, isDirectory); err != nil {
		return err
	}
	return writeAnew(etc, name, []byte(text), mode)
}

// makeHome makes the home of an account. If the home exists, makeHome changes its owner.
func (b *built) makeHome(a account) error {
	mode := fs.FileMode(0o755)
	if a.name == "root" {
		mode = 0o700
	}
	if err := b.makeReal(a.home, mode); err != nil {
		return err
	}
	if err := openUp("root"+filepath.Dir(a.home), 0o555); err != nil {
		return err
	}
	return errors.Join(os.Lchown("root"+a.home, a.id, a.id), openUp("root"+a.home, mode))
}

// openUp adds bits to the mode of the file at path. The file must not be a link.
func openUp(path string, mode fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&mode == mode {
		return err
	}
	return os.Chmod(path, info.Mode()&(fs.ModePerm|fs.ModeSticky|fs.ModeSetgid)|mode)
}

// openInRoot opens a file of the root that is being made. It follows links as if this root were
// already the root of the sandbox.
func openInRoot(path string, flags uint64) (*os.File, error) {
	root, err := os.Open("root")
	if err != nil {
		return nil, err
	}
	defer root.Close()
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(root.Fd()), path, &how)
	// The kernel fails to follow a ".." while anything on the machine is renamed or mounted.
	for tries := 1; errors.Is(err, unix.EAGAIN) && tries < maxOpens; tries++ {
		fd, err = unix.Openat2(int(root.Fd()), path, &how)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// maxOpens limits the attempts of openInRoot to open a file.
const maxOpens = 10_000

// maxAccounts bounds the size of an account file.
const maxAccounts = 1 << 20

// readInRoot returns the text of a file, or "" if it is missing, not regular, or a broken link.
func readInRoot(path string) (string, error) {
	f, err := openInRoot(path, unix.O_PATH)
	if err != nil {
		return "", missing(err)
	}
	info, err := f.Stat()
	f.Close()
	if err != nil || !info.Mode().IsRegular() {
		return "", err
	}
	if f, err = openInRoot(path, unix.O_RDONLY); err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAccounts+1))
	if err == nil && len(text) > maxAccounts {
		err = fmt.Errorf("%s has more than %d bytes", path, maxAccounts)
	}
	return string(text), err
}

// missing returns nil if err means that a path leads to no file. Otherwise it returns err.
func missing(err error) error {
	for _, nowhere := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP} {
		if errors.Is(err, nowhere) {
			return nil
		}
	}
	return err
}

// replaceBeside writes a file into a directory of configuration files. If the directory is missing,
// replaceBeside does nothing, because no program would read the file.
func replaceBeside(dir, name, text string, mode uint32) error {
	d, err := openInRoot(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return missing(err)
	}
	defer d.Close()
	if err := unix.Unlinkat(int(d.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "replace", Path: filepath.Join(dir, name), Err: err}
	}
	fd, err := unix.Openat(int(d.Fd()), name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return &fs.PathError{Op: "create", Path: filepath.Join(dir, name), Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
