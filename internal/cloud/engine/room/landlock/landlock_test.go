//go:build linux

package landlock

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/capability"
	"github.com/e2bctl/e2bctl/internal/must"
)

// restricted calls f on a thread that has no capability and only that access. The thread then
// ends.
func restricted(t *testing.T, access Access, f func()) {
	t.Helper()
	if _, err := version(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("this machine does not have it: %v", err)
	}
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // permanently: no other code may run on this thread
		err := errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), capability.Drop(0))
		if err == nil {
			err = Apply(access)
		}
		if err == nil {
			f()
		}
		failed <- err
	}()
	must.Do(t, <-failed)
}

// operations are the operations on a file, and in its directory. Each is tried with a file
// and an empty directory of its own, beside which own is the directory of the sandbox.
var operations = []struct {
	name string
	try  func(file, dir, own string) error
}{
	{"read", func(file, _, _ string) error { _, err := os.ReadFile(file); return err }},
	{"write", func(file, _, _ string) error { return open(file, unix.O_WRONLY) }},
	{"append", func(file, _, _ string) error { return open(file, unix.O_WRONLY|unix.O_APPEND) }},
	{"truncate", func(file, _, _ string) error { return unix.Truncate(file, 0) }},
	{"empty", func(file, _, _ string) error { return open(file, unix.O_RDONLY|unix.O_TRUNC) }},
	{"execute", execute0},
	{"list", func(_, dir, _ string) error { return open(dir, unix.O_RDONLY|unix.O_DIRECTORY) }},
	{"create", func(_, dir, _ string) error { return open(dir+"/new", unix.O_WRONLY|unix.O_CREAT) }},
	{"mkdir", func(_, dir, _ string) error { return unix.Mkdir(dir+"/new", 0o700) }},
	{"symlink", func(_, dir, _ string) error { return unix.Symlink("x", dir+"/new") }},
	{"fifo", func(_, dir, _ string) error { return unix.Mkfifo(dir+"/new", 0o600) }},
	{"socket", func(_, dir, _ string) error { return unix.Mknod(dir+"/new", unix.S_IFSOCK|0o600, 0) }},
	{"device", func(_, dir, _ string) error { return unix.Mknod(dir+"/new", unix.S_IFCHR|0o600, 0) }},
	{"block device", func(_, dir, _ string) error { return unix.Mknod(dir+"/new", unix.S_IFBLK|0o600, 0) }},
	{"rename", func(file, _, _ string) error { return unix.Rename(file, file+".new") }},
	{"move in", func(file, dir, own string) error { return unix.Rename(own+"/"+filepath.Base(file)+".in", dir+"/in") }},
	{"move out", func(file, _, own string) error { return unix.Rename(file, own+"/"+filepath.Base(file)+".out") }},
	{"link in", func(file, dir, own string) error { return unix.Link(own+"/"+filepath.Base(file)+".in", dir+"/in") }},
	{"link out", func(file, _, own string) error { return unix.Link(file, own+"/"+filepath.Base(file)+".out") }},
	{"remove", func(file, _, _ string) error { return unix.Unlink(file) }},
	{"rmdir", func(_, dir, _ string) error { return unix.Rmdir(dir) }},
}

func open(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

// execute0 executes a file that is no program, which the kernel notices only if it may be
// executed.
func execute0(file, _, _ string) error {
	_, err := os.StartProcess(file, []string{file}, &os.ProcAttr{})
	if errors.Is(err, unix.ENOEXEC) {
		return nil
	}
	return err
}

// TestAccess tries all operations with every class of path: all that are not listed are
// refused.
func TestAccess(t *testing.T) {
	t.Parallel()
	if version, err := version(); err == nil && version < truncates {
		t.Skipf("version %d refuses less: LeavesOpen says what", version)
	}
	base := t.TempDir()
	inDirectory := []string{"read", "list"}
	classes := map[string][]string{ // the allowed operations
		"own": {
			"read", "write", "append", "truncate", "empty", "execute", "list", "create", "mkdir", "symlink", "fifo", "socket",
			"rename", "move in", "move out", "link in", "link out", "remove", "rmdir",
		},
		"execute":      append(inDirectory, "execute"),
		"read":         inDirectory,
		"device":       append(inDirectory, "write", "append", "truncate", "empty"),
		"nothing":      nil,
		"program file": {"read", "execute"},
		"read file":    {"read"},
		"device file":  {"read", "write", "append", "truncate", "empty"},
		"execute file": {"read", "execute"},
		"own file":     {"read", "write", "append", "truncate", "empty", "execute"},
	}
	access := Access{Own: base + "/own", Execute: []string{base + "/execute"}, Read: []string{base + "/read", base + "/gone"}, Devices: []string{base + "/device", "/dev/null"}}
	for class := range classes {
		for _, op := range operations {
			dir := filepath.Join(base, class, op.name)
			beside := ownOf(base, class)
			err := errors.Join(os.MkdirAll(dir, 0o700), os.MkdirAll(beside, 0o700))
			for _, file := range []string{dir + ".file", filepath.Join(beside, op.name+".file.in")} {
				err = errors.Join(err, os.WriteFile(file, []byte("text"), 0o700))
			}
			must.Do(t, err)
			switch class {
			case "execute file":
				access.Execute = append(access.Execute, dir+".file")
			case "read file":
				access.Read = append(access.Read, dir+".file")
			case "device file":
				access.Devices = append(access.Devices, dir+".file")
			}
		}
	}
	for _, class := range []string{"program file", "own file"} { // an access has only one of each
		for _, op := range operations {
			access := access
			file := filepath.Join(base, class, op.name+".file")
			if class == "own file" {
				access.Own = file
			}
			access.Program = programOf(t, file, class == "program file")
			restricted(t, access, func() { check(t, base, class, op.name, classes[class]) })
		}
		delete(classes, class)
	}
	access.Program = programOf(t, "/bin/true", true)
	restricted(t, access, func() {
		for class, allowed := range classes {
			for _, op := range operations {
				check(t, base, class, op.name, allowed)
			}
		}
	})
}

// programOf opens a program; where none is wanted it is that of this process.
func programOf(t *testing.T, file string, wanted bool) int {
	t.Helper()
	if !wanted {
		file = "/proc/self/exe"
	}
	f, err := os.Open(file)
	must.Do(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return int(f.Fd())
}

// ownOf returns the directory, within that of the sandbox, whose files are for one class.
func ownOf(base, class string) string { return filepath.Join(base, "own", "for "+class) }

func check(t *testing.T, base, class, operation string, allowed []string) {
	for _, op := range operations {
		if op.name != operation {
			continue
		}
		dir := filepath.Join(base, class, op.name)
		err := op.try(dir+".file", dir, ownOf(base, class))
		refused := errors.Is(err, unix.EACCES) || errors.Is(err, unix.EXDEV)
		if want := !slices.Contains(allowed, op.name); refused != want || (err != nil) != want {
			t.Errorf("%s: %s: got error %v, want it refused: %t", class, op.name, err, want)
		}
	}
}

// TestAccessToTheOutside checks operations without a path: calls to devices, TCP, signals and
// sockets.
func TestAccessToTheOutside(t *testing.T) {
	t.Parallel()
	version, err := version()
	if err != nil {
		version = signals // restricted reports why this is skipped
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	must.Do(t, err)
	defer listener.Close()
	abstract, err := net.Listen("unix", "@e2bctl-test-"+strings.ReplaceAll(t.TempDir(), "/", "-"))
	must.Do(t, err)
	defer abstract.Close()
	socket := func(domain int, try func(fd int) error) error {
		fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		return try(fd)
	}
	call := func(device string) error {
		fd, err := unix.Open(device, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		_, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	}
	var local unix.SockaddrInet4
	local.Addr = [4]byte{127, 0, 0, 1}
	remote := local
	remote.Port = listener.Addr().(*net.TCPAddr).Port
	tests := []struct {
		name  string
		since int // version of Landlock
		want  unix.Errno
		try   func() error
	}{
		{"a call to a device", 1, unix.ENOTTY, func() error { return call("/dev/null") }},
		{"a call to what is only read", 5, unix.EACCES, func() error { return call("/dev/zero") }},
		{"to listen", 4, unix.EACCES, func() error { return socket(unix.AF_INET, func(fd int) error { return unix.Bind(fd, &local) }) }},
		{"to connect", 4, unix.EACCES, func() error { return socket(unix.AF_INET, func(fd int) error { return unix.Connect(fd, &remote) }) }},
		{"an abstract socket", signals, unix.EPERM, func() error {
			return socket(unix.AF_UNIX, func(fd int) error { return unix.Connect(fd, &unix.SockaddrUnix{Name: abstract.Addr().String()}) })
		}},
		{"a signal", signals, unix.EPERM, func() error { return unix.Kill(os.Getppid(), 0) }},
	}
	restricted(t, Access{Program: programOf(t, "", false), Own: t.TempDir(), Read: []string{"/dev/zero"}, Devices: []string{"/dev/null"}}, func() {
		for _, tt := range tests {
			if err := tt.try(); version >= tt.since && !errors.Is(err, tt.want) {
				t.Errorf("%s: got error %v, want %v", tt.name, err, tt.want)
			}
		}
	})
}

// TestApplyFails checks that an access that cannot be granted is an error, and a missing path
// is none.
func TestApplyFails(t *testing.T) {
	t.Parallel()
	if err := Apply(Access{Program: -1}); err == nil {
		t.Error("no error without a program")
	}
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	for _, access := range []Access{{Own: file + "/x"}, {Own: "/", Read: []string{file + "/x"}}, {Own: "/", Execute: []string{file + "/x"}}, {Own: "/", Devices: []string{file + "/x"}}} {
		access.Program = programOf(t, "", false)
		if err := Apply(access); !errors.Is(err, unix.ENOTDIR) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: got error %v, want ENOTDIR", access, err)
		}
	}
}
