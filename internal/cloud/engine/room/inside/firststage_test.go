//go:build linux

package inside

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/place"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// rehearsal is a builder that starts no clock and executes no program.
type rehearsal struct {
	namespaces
	starts, executes func(*wire.InitSpec) error
}

func (r rehearsal) start(spec *wire.InitSpec, _ *wire.Files) error  { return r.starts(spec) }
func (r rehearsal) execute(_ *wire.Conn, spec *wire.InitSpec) error { return r.executes(spec) }

// firstStage is one run of the first stage, on a thread of its own.
type firstStage struct {
	late, ranged bool
	change       func(*wire.InitSpec, *wire.Files)
	refuse       error // of the start
	number       uint32
	n            int    // which call with this number fails
	refused      uint32 // all calls with this number fail
}

var errExecuted = errors.New("executed")

// run returns the text of the failed call as failNth does, the error of the stage, and the message that
// its server received.
func (f firstStage) run(t *testing.T) (text string, err error, ready wire.Message) { //nolint:revive,staticcheck // the message is the least of it
	t.Helper()
	var files wire.Files
	spec := buildSpec(t, &files)
	spec.Late, spec.Ranged = f.late, f.ranged
	if f.change != nil {
		f.change(spec, &files)
	}
	server, control, failed := bridgeEnds()
	must.Do(t, failed)
	received := make(chan wire.Message, 1)
	go func() {
		m, sent, err := server.Receive(8)
		if err == nil {
			sent.Close()
			err = server.Send(wire.Message{Kind: wire.KindGo})
		}
		if err != nil {
			m = wire.Message{}
		}
		received <- m
	}()
	apart(t, func() error {
		unix.Umask(0o077)
		run := rehearsal{starts: func(*wire.InitSpec) error { return f.refuse }, executes: func(spec *wire.InitSpec) error {
			here, err := os.Getwd()
			lo, failed := net.InterfaceByName("lo")
			umask := unix.Umask(0)
			if err = errors.Join(err, failed); err != nil {
				t.Errorf("%+v: %v", f, err)
			} else if here != "/" || umask != 0 || lo.Flags&net.FlagUp == 0 || len(spec.Mounted) != len(spec.Trees) {
				t.Errorf("%+v: it executes in %s with the umask %o, and lo is %+v", f, here, umask, lo)
			}
			return errExecuted
		}}
		stage := func() error { err = initWith(run, control, spec, &files); return nil }
		if f.refused != 0 {
			if err := failAll(f.refused); err != nil {
				return err
			}
		}
		if f.number == 0 {
			return stage()
		}
		var watched error
		text, watched = failNth(f.number, f.n, 0, stage)
		return watched
	})
	files.Close()
	control.Close()
	ready = patience.Receive(t, "the end of the server's side", received)
	server.Close()
	return text, err, ready
}

// TestFirstStage checks the message of the first stage to its server, and that each failure of a step
// ends it before the program is executed.
func TestFirstStage(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	closed, err := os.Open("/dev/null")
	must.Do(t, errors.Join(err, closed.Close()))
	errStart := errors.New("no start")
	for name, tt := range map[string]struct {
		stage firstStage
		want  error
		text  string
	}{
		"ranged":              {firstStage{ranged: true}, errExecuted, ""},
		"one id":              {firstStage{change: func(spec *wire.InitSpec, _ *wire.Files) { spec.Mounted = nil }}, errExecuted, ""},
		"late":                {firstStage{ranged: true, late: true}, errExecuted, ""},
		"no start":            {firstStage{ranged: true, refuse: errStart}, errStart, ""},
		"without the mounter": {firstStage{ranged: true, change: func(spec *wire.InitSpec, _ *wire.Files) { spec.Mounter = true }}, wire.ErrProtocol, "mounter"},
		"a closed mounter": {firstStage{ranged: true, change: func(spec *wire.InitSpec, files *wire.Files) {
			spec.Mounter = true
			files.Add(wire.FileMounter, closed)
		}}, unix.EBADF, "start the mounter"},
		"no such processors":      {firstStage{ranged: true, change: func(spec *wire.InitSpec, _ *wire.Files) { spec.Processors = []int{1023} }}, errExecuted, ""},
		"a limit that is unknown": {firstStage{ranged: true, change: func(spec *wire.InitSpec, _ *wire.Files) { spec.Limits = []wire.Rlimit{{1 << 20, 7}} }}, unix.EINVAL, "set resource limit 1048576 to 7"},
		"no tree":                 {firstStage{ranged: true, change: func(spec *wire.InitSpec, _ *wire.Files) { spec.Trees = []string{"/none"} }}, unix.ENOENT, "/none"},
	} {
		_, err, ready := tt.stage.run(t)
		if !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), tt.text) {
			t.Errorf("%s: got error %v, want %v with %q", name, err, tt.want, tt.text)
		}
		noted := slices.ContainsFunc(ready.Notes, func(note string) bool { return strings.HasPrefix(note, "programs count all processors") })
		if began := ready.Kind == wire.KindReady; began != (errors.Is(err, errExecuted) || name == "a closed mounter") || noted != (name == "no such processors") {
			t.Errorf("%s: the server received %+v", name, ready)
		}
	}
	must.Do(t, limit([]wire.Rlimit{}))
	if err := runInit(nil, json.RawMessage("["), nil); err == nil {
		t.Error("a malformed description is no error")
	}
	for _, tt := range []struct {
		chosen wire.Runner
		want   runner
	}{{wire.Runner{Ranged: true}, namespaces{}}, {wire.Runner{GVisor: true}, &gvisor{}}, {wire.Runner{Root: &place.Root{}}, inPlace{}}} {
		if got := chooseRunner(tt.chosen); reflect.TypeOf(got) != reflect.TypeOf(tt.want) {
			t.Errorf("%+v: got the runner %T, want %T", tt.chosen, got, tt.want)
		}
	}
}

// TestEachCallOfAFirstStageFails makes each system call of the first stage fail that no build makes. No
// program may then be executed.
func TestEachCallOfAFirstStageFails(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	var queue unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_MSGQUEUE, &queue))
	limits := func(spec *wire.InitSpec, _ *wire.Files) {
		spec.Limits = []wire.Rlimit{{unix.RLIMIT_MSGQUEUE, queue.Max}, {unix.RLIMIT_MSGQUEUE, queue.Max}}
	}
	for call, number := range map[string]uint32{"loopback": unix.SYS_SOCKET, "limit": unix.SYS_PRLIMIT64} {
		if _, err, _ := (firstStage{ranged: true, change: limits, refused: number}).run(t); !errors.Is(err, unix.EIO) {
			t.Errorf("no %s: got error %v, want its error", call, err)
		}
	}
	for call, number := range map[string]uint32{
		"ioctl": unix.SYS_IOCTL, "sendmsg": unix.SYS_SENDMSG, "recvmsg": unix.SYS_RECVMSG,
		"unshare": unix.SYS_UNSHARE, "chdir": unix.SYS_CHDIR,
	} {
		failed := 0
		for n := 1; ; n++ {
			text, err, _ := firstStage{ranged: true, late: call == "chdir", change: limits, number: number, n: n}.run(t)
			if text == "" || n > 8 {
				break
			}
			failed++
			if !errors.Is(err, unix.EIO) {
				t.Errorf("the call %d of %s failed: got error %v, want its error", n, call, err)
			}
		}
		if failed == 0 {
			t.Errorf("there is no call of %s", call)
		}
	}
}

// failAll makes each system call of this thread with one of the numbers fail with EIO. The kernel does so
// by itself: a call that Go makes without telling its scheduler must not wait for another goroutine, as
// those do that calltest watches.
func failAll(numbers ...uint32) error {
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	for _, number := range numbers {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: number},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EIO)})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

// execution records the steps of a thread up to the execution of the second stage, which it refuses.
type execution struct {
	number            uint32 // the n-th call with this number fails
	n                 int
	refused           []uint32 // all calls with these numbers fail
	failed            bool
	private, exported bool // it asked for no_new_privs, and it passed on its control connection
	umask             int
}

// do calls execute on a thread that has files and a umask of its own, and lets it execute nothing.
func (e *execution) do(t *testing.T, execute func() error) (err error) {
	t.Helper()
	apart(t, func() error {
		if err := failAll(append(e.refused, unix.SYS_EXECVEAT)...); err != nil {
			return err
		}
		ended, failed := calltest.Watch([]uint32{unix.SYS_PRCTL, unix.SYS_DUP3, endOfWatch}, func(c calltest.Call) (unix.Errno, bool) {
			switch c.Number {
			case endOfWatch:
				return 0, true
			case unix.SYS_PRCTL:
				e.private = e.private || c.Arguments[0] == unix.PR_SET_NO_NEW_PRIVS
			case unix.SYS_DUP3:
				e.exported = true
			}
			if c.Number == e.number {
				if e.n--; e.n == 0 {
					e.failed = true
					return unix.EIO, false
				}
			}
			return 0, false
		})
		if failed != nil {
			return failed
		}
		if failed = unix.Unshare(unix.CLONE_FILES); failed == nil { // otherwise, what is exported would replace a file of the test
			unix.Umask(0o077)
			err = execute()
			e.umask = unix.Umask(0)
		}
		_, _, _ = unix.Syscall(endOfWatch, 0, 0, 0)
		<-ended
		return failed
	})
	return err
}

// TestNothingIsExecutedWithTooManyRights checks the last step of the first stage: every restriction is in
// force before the second stage is executed, and the failure of one of them prevents that.
func TestNothingIsExecutedWithTooManyRights(t *testing.T) {
	t.Parallel()
	server, control, err := bridgeEnds()
	must.Do(t, err)
	defer server.Close()
	errFilter := errors.New("no filter")
	const last = "execute envd: execveat: input/output error"
	for _, ranged := range []bool{false, true} {
		execute := func() error { return executeEnvd(control, ranged, func() error { return nil }) }
		for call, number := range map[string]uint32{"prctl": unix.SYS_PRCTL, "dup3": unix.SYS_DUP3} {
			for n, failed := 1, true; failed; n++ {
				e := execution{number: number, n: n}
				err := e.do(t, execute)
				if failed = e.failed; failed == (fmt.Sprint(err) == last) || !errors.Is(err, unix.EIO) || e.umask != 0o022 {
					t.Errorf("ranged %v: the call %d of %s failed: got error %v and the umask %o, want its error", ranged, n, call, err, e.umask)
				}
				if !failed && (e.private == ranged || !e.exported || n == 1) {
					t.Errorf("ranged %v: got %+v", ranged, e)
				}
			}
		}
		e := execution{refused: []uint32{unix.SYS_CAPSET}}
		if err := e.do(t, execute); !errors.Is(err, unix.EIO) || err.Error() == last {
			t.Errorf("ranged %v: it keeps its capabilities, and goes on with error %v", ranged, err)
		}
		must.Is(t, e.do(t, func() error { return executeEnvd(control, ranged, func() error { return errFilter }) }), errFilter)
	}
	for call, want := range map[uint32]string{0: last, unix.SYS_DUP3: "dup3: input/output error"} {
		e := execution{number: call, n: 1}
		if err := e.do(t, func() error { return (&gvisor{}).execute(control, nil) }); fmt.Sprint(err) != want || e.umask != 0o022 || e.private {
			t.Errorf("gVisor: got error %v after %+v, want %v", err, e, want)
		}
	}
	control.Close()
	e := execution{}
	if err := e.do(t, func() error { return executeEnvd(control, true, func() error { return nil }) }); err == nil || err.Error() == last {
		t.Errorf("without a control connection: got error %v", err)
	}
	apart(t, func() error {
		text, err := failNth(unix.SYS_PRCTL, 1, 0, func() error {
			if err := restrictEnvd(); !errors.Is(err, unix.EIO) {
				return fmt.Errorf("others may attach to envd: got error %w", err)
			}
			return nil
		})
		if text == "" {
			t.Error("nothing forbids others to attach to envd")
		}
		return err
	})
}

// TestRootOfGVisor builds what the process of gVisor needs around the root of its sandbox, and makes each
// call of it fail.
func TestRootOfGVisor(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("/etc/hostname")
	must.Do(t, err)
	enter := func(t *testing.T, number uint32, n int) (text string, err error) {
		t.Helper()
		var files wire.Files
		spec := buildSpec(t, &files)
		spec.Late, spec.Program = true, "/etc/hostname"
		tree := spec.Trees[0]
		apart(t, func() error {
			v := &gvisor{}
			b, failed := build(v, spec, &files)
			if failed == nil {
				failed = v.start(spec, nil)
			}
			if failed != nil {
				return failed
			}
			defer b.files.Close()
			if number != 0 {
				var watched error
				text, watched = failNth(number, n, 0, func() error { err = v.enter(spec); return nil })
				return watched
			}
			if err := v.enter(spec); err != nil {
				return err
			}
			here, err := os.Getwd()
			state, failed := os.Stat(runnerState)
			if err = errors.Join(err, failed); err != nil {
				return err
			}
			if here != "/" || state.Mode().Perm() != 0o700 || exists(filepath.Dir(tree)) {
				t.Errorf("it is in %s, its state is %v, and the machine's files are visible: %v", here, state, exists(filepath.Dir(tree)))
			}
			if got, err := os.ReadFile(runnerProgram); err != nil || !bytes.Equal(got, program) {
				t.Errorf("the program is %q, error %v", got, err)
			}
			return errors.Join(shows("/proc/meminfo", string(memoryText(1<<30, cgroup.Memory{})), true), shows(runnerRoot+tree+"/file", "text", true),
				shows(runnerRoot+guest.AuthorityFile, "certificate\n", false), mounted(runnerState, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV))
		})
		return text, err
	}
	if _, err := enter(t, 0, 0); err != nil {
		t.Error(err)
	}
	for call, number := range map[string]uint32{
		"mkdirat": unix.SYS_MKDIRAT, "openat": unix.SYS_OPENAT, "move_mount": unix.SYS_MOVE_MOUNT, "mount": unix.SYS_MOUNT, "mount_setattr": unix.SYS_MOUNT_SETATTR,
		"chdir": unix.SYS_CHDIR, "fchdir": unix.SYS_FCHDIR, "chroot": unix.SYS_CHROOT, "pivot_root": unix.SYS_PIVOT_ROOT, "umount2": unix.SYS_UMOUNT2,
	} {
		for n := 1; ; n++ {
			text, err := enter(t, number, n)
			if text == "" {
				if n == 1 {
					t.Errorf("there is no call of %s", call)
				}
				break
			}
			if !errors.Is(err, unix.EIO) {
				t.Errorf("the call %d of %s, with %s, failed: got error %v, want its error", n, call, text, err)
			}
		}
	}
	v := &gvisor{}
	must.Is(t, v.start(&wire.InitSpec{}, &wire.Files{}), wire.ErrProtocol)
	must.Is(t, v.start(&wire.InitSpec{Program: "/none"}, &wire.Files{}), unix.ENOENT)
}
