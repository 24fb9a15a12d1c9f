//go:build linux

package spawn

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/refusetest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestMain is also the program that the tests start: it tells its limit on processes and its
// parent-death signal, and lives until the test has closed the other end of its control socket. If
// it is told "later" before that, it tells what came of its own children; see TestStartLater. The words
// after "later" are calls that are refused to it.
func TestMain(m *testing.M) {
	if os.Args[0] != hello.Argv0 {
		runtime.LockOSThread() // no test runs on the first thread, which Go never ends
		os.Exit(m.Run())       //nolint:forbidigo // this is the main function
	}
	control := os.NewFile(3, "control")
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit)
	signal, errSignal := parentDeathSignal()
	here, errHere := os.Getwd()
	if errors.Join(err, errSignal, errHere) != nil {
		os.Exit(1) //nolint:forbidigo // this is the main function
	}
	fmt.Fprint(os.Stderr, "started")
	fmt.Fprintf(control, "limit %d signal %d in %s arguments %q environment %q\n", limit.Cur, signal, here, os.Args, os.Environ())
	if told, _ := io.ReadAll(control); strings.HasPrefix(string(told), "later") {
		if err := refusetest.Refuse(strings.TrimPrefix(string(told), "later")); err != nil {
			os.Exit(1) //nolint:forbidigo // this is the main function
		}
		fmt.Fprint(control, startLater())
	}
	os.Exit(7) //nolint:forbidigo // this is the main function
}

// child is a started process with the test's end of its control socket.
type child struct {
	*Process
	control *os.File
}

// startChild starts this program. Its processes limit and group are the placement's.
func startChild(t *testing.T, at Placement) (child, error) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	near, far := os.NewFile(uintptr(pair[0]), "near"), os.NewFile(uintptr(pair[1]), "far")
	t.Cleanup(func() { near.Close() })
	defer far.Close()
	binary, err := os.Open("/proc/self/exe")
	must.Do(t, err)
	defer binary.Close()
	p, err := Start(binary, far, nil, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, at)
	return child{p, near}, err
}

// says returns what the child says about itself.
func (c child) says(t *testing.T) string {
	t.Helper()
	text := make([]byte, 1<<10)
	n, err := c.control.Read(text)
	must.Do(t, err)
	return strings.TrimSpace(string(text[:n]))
}

// ends lets the child end, and checks its status.
func (c child) ends(t *testing.T) {
	t.Helper()
	must.Do(t, c.control.Close())
	c.isReaped(t)
	if status := c.Status(); !status.Exited() || status.ExitStatus() != 7 {
		t.Errorf("got status %v, want that it exited with 7", status)
	}
}

func (c child) isReaped(t *testing.T) {
	t.Helper()
	patience.Receive(t, "the end of the process, which has been reaped", c.Done)
}

// nextStarter returns the thread that will start the next child, and the number of its users.
func nextStarter() (s *starter, users int) {
	starting.Lock()
	defer starting.Unlock()
	if s = starting.next; s != nil {
		users = s.users
	}
	return s, users
}

// hasEnded reports whether a starter takes no more work.
func (s *starter) hasEnded() bool {
	select {
	case _, open := <-s.work:
		return !open
	default:
		return false
	}
}

// TestStart checks that children share one thread, which ends with the last of them.
//
//nolint:paralleltest // it looks at the thread that all starts share
func TestStart(t *testing.T) {
	one, err := startChild(t, Placement{})
	must.Do(t, err)
	two, err := startChild(t, Placement{})
	must.Do(t, err)
	shared, users := nextStarter()
	if users != 2 {
		t.Errorf("after two starts the thread has %d users", users)
	}
	want := `signal 9 in / arguments ["e2bctl-cloud"] environment []`
	if got := one.says(t); !strings.HasSuffix(got, want) {
		t.Errorf("got a process with %s, want %s", got, want)
	}
	two.says(t)
	one.ends(t)
	if next, users := nextStarter(); next != shared || users != 1 || shared.hasEnded() {
		t.Errorf("after one of two has ended, the thread has %d users, and ended: %v", users, shared.hasEnded())
	}
	two.Kill()
	two.isReaped(t)
	if status := two.Status(); status.Signal() != syscall.SIGKILL {
		t.Errorf("got status %v, want that it was killed", status)
	}
	if next, _ := nextStarter(); next != nil || !shared.hasEnded() {
		t.Errorf("after both have ended: the next thread is %v, and the old one ended: %v", next, shared.hasEnded())
	}
}

// TestStderr checks that the standard error of a child is the given file.
func TestStderr(t *testing.T) {
	t.Parallel()
	binary, err := os.Open("/proc/self/exe")
	must.Do(t, err)
	defer binary.Close()
	null, err := os.Open(os.DevNull)
	must.Do(t, err)
	defer null.Close()
	from, to, err := os.Pipe()
	must.Do(t, err)
	defer from.Close()
	p, err := Start(binary, null, to, &syscall.SysProcAttr{}, Placement{})
	must.Do(t, errors.Join(err, to.Close()))
	text, err := io.ReadAll(from)
	if err != nil || string(text) != "started" {
		t.Errorf("got %q and error %v", text, err)
	}
	patience.Receive(t, "the end of the process", p.Done)
}

// TestStartUnderALimit checks that the child has the limit that was lent for its start.
//
//nolint:paralleltest // the limit is that of the whole process
func TestStartUnderALimit(t *testing.T) {
	var own, after unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NPROC, &own))
	for given, want := range map[uint64]uint64{0: own.Cur, own.Cur - 5: own.Cur - 5} {
		c, err := startChild(t, Placement{Processes: given})
		must.Do(t, err)
		if got := c.says(t); !strings.HasPrefix(got, fmt.Sprintf("limit %d ", want)) {
			t.Errorf("with the limit %d: got %s, want %d", given, got, want)
		}
		c.ends(t)
		must.Do(t, unix.Getrlimit(unix.RLIMIT_NPROC, &after))
		if after != own {
			t.Errorf("afterwards the limit is %+v, want %+v", after, own)
		}
	}
}

// TestAwaitEnd checks that it returns when the child has ended, and not before.
func TestAwaitEnd(t *testing.T) {
	t.Parallel()
	c, err := startChild(t, Placement{})
	must.Do(t, err)
	c.says(t)
	state := make(chan string)
	go func() {
		awaitEnd(c.Cmd.Process)
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Cmd.Process.Pid))
		if err != nil {
			state <- "gone"
			return
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		state <- after[:1]
	}()
	other, err := startChild(t, Placement{}) // time for a wait that ends too early
	must.Do(t, err)
	other.says(t)
	other.ends(t)
	select {
	case got := <-state:
		t.Errorf("it returned while the child was in the state %s", got)
		c.ends(t)
		return
	default:
	}
	c.ends(t)
	if got := <-state; got != "gone" && got != "Z" && got != "X" {
		t.Errorf("it returned while the child was in the state %s", got)
	}
}

// TestStartInGroups checks that the thread joins the child's groups, and then its own again, whatever
// fails.
//
//nolint:paralleltest // it looks at the thread that all starts share
func TestStartInGroups(t *testing.T) {
	for what, tt := range map[string]struct {
		closed string // the group that cannot be joined
		starts bool
		away   bool
		home   string
	}{
		"all is well": {starts: true, home: "0"}, "a group cannot be joined": {closed: "group", home: "0"},
		"its own cannot be joined": {closed: "home", away: true},
	} {
		group, err := os.Create(filepath.Join(t.TempDir(), "group"))
		must.Do(t, err)
		home, err := os.Create(filepath.Join(t.TempDir(), "home"))
		must.Do(t, err)
		files := map[string]*os.File{"group": group, "home": home}
		if tt.closed != "" {
			must.Do(t, files[tt.closed].Close())
		}
		before, err := startChild(t, Placement{})
		must.Do(t, err)
		thread, _ := nextStarter()
		number := thread.number()
		c, err := startChild(t, Placement{Groups: []*os.File{group}, Home: []*os.File{home}})
		if (err == nil) != tt.starts || errors.Is(err, ErrAway) != tt.away || !tt.starts && !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: got %v, want that it starts: %v, or a thread that is away: %v", what, err, tt.starts, tt.away)
		}
		if err == nil {
			c.says(t)
			c.ends(t)
		}
		if text, err := os.ReadFile(home.Name()); err != nil || string(text) != tt.home {
			t.Errorf("%s: to its own group was written %q, want %q; %v", what, text, tt.home, err)
		}
		if next, users := nextStarter(); (next == thread) == tt.away || !tt.away && users != 1 {
			t.Errorf("%s: the same thread starts the next: %v, with %d users", what, next == thread, users)
		}
		before.says(t)
		before.ends(t)
		if !thread.hasEnded() {
			t.Errorf("%s: the thread takes work after its last child", what)
		}
		if tt.away && number != os.Getpid() {
			patience.Until(t, "a thread that is in a wrong group ends", func() bool {
				_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", number))
				return errors.Is(err, os.ErrNotExist)
			})
		}
	}
}

// number returns the id of the thread.
func (s *starter) number() int {
	id := make(chan int)
	s.work <- func() { id <- unix.Gettid() }
	return <-id
}

// TestUserNamespace checks that the namespace is one of its own with the right owner, and that its
// process is gone.
//
//nolint:paralleltest // it looks at the children of the whole process
func TestUserNamespace(t *testing.T) {
	binary, err := os.Open("/proc/self/exe")
	must.Do(t, err)
	defer binary.Close()
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	groups := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user may not be allowed to make user namespaces")
	}
	before, err := orphan.ChildrenOf(os.Getpid())
	must.Do(t, err)
	space, err := UserNamespace(binary, ids, groups)
	must.Do(t, err)
	defer space.Close()
	var got, own unix.Stat_t
	must.Do(t, errors.Join(unix.Fstat(int(space.Fd()), &got), unix.Stat("/proc/self/ns/user", &own)))
	if got.Dev != own.Dev || got.Ino == own.Ino {
		t.Errorf("got the file %d of %d, want another of %d than %d", got.Ino, got.Dev, own.Dev, own.Ino)
	}
	twice := append(ids, ids...)
	for what, make := range map[string]func() (*os.File, error){
		"no program":         func() (*os.File, error) { return UserNamespace(nil, ids, groups) },
		"users that overlap": func() (*os.File, error) { return UserNamespace(binary, twice, groups) },
		"such groups":        func() (*os.File, error) { return UserNamespace(binary, ids, append(groups, groups...)) },
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
	failed, err := calltest.FailNth(t, unix.SYS_OPENAT, 1, unix.EIO, func() error { _, err := UserNamespace(binary, ids, groups); return err })
	if !failed || !errors.Is(err, unix.EIO) {
		t.Errorf("without /dev/null: got error %v", err)
	}
	if after, err := orphan.ChildrenOf(os.Getpid()); err != nil || !slices.Equal(before, after) {
		t.Errorf("there were the children %v, and now there are %v and the error %v", before, after, err)
	}
}

// TestMapIDs checks the ids of a range, and those of a single user.
func TestMapIDs(t *testing.T) {
	t.Parallel()
	var ranged, single syscall.SysProcAttr
	MapIDs(&ranged, true, 100, 50, 1, 2)
	MapIDs(&single, false, 100, 50, 1, 2)
	all := []syscall.SysProcIDMap{{HostID: 100, Size: 50}}
	for what, diff := range map[string]string{
		"a range": cmp.Diff(syscall.SysProcAttr{UidMappings: all, GidMappings: all, GidMappingsEnableSetgroups: true, Credential: &syscall.Credential{}}, ranged),
		"a user":  cmp.Diff(syscall.SysProcAttr{UidMappings: []syscall.SysProcIDMap{{HostID: 1, Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: 2, Size: 1}}}, single),
	} {
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	if got := FirstID(2); got != 2*SlotSize {
		t.Errorf("the first id of slot 2 is %d, want %d", got, 2*SlotSize)
	}
}

// TestRandomFirst checks that all ids of a room are in the range, without the slot that all servers share, and
// that the ids of rooms differ.
func TestRandomFirst(t *testing.T) {
	t.Parallel()
	seen := make(map[int]bool)
	for range 100 {
		first := RandomFirst()
		if first < IDBase+SlotSize || first+RoomIDs > IDBase+IDCount || first+FirstID(SlotsCount) > IDBase+IDCount {
			t.Errorf("got %#x and %#x ids, want them in %#x to %#x", first, RoomIDs, IDBase+SlotSize, IDBase+IDCount)
		}
		seen[first] = true
	}
	if len(seen) < 90 {
		t.Errorf("100 rooms have %d first ids", len(seen))
	}
}

// TestReserveThreads checks that the threads are there at once, and stay.
//
//nolint:paralleltest // the threads are those of the whole process
func TestReserveThreads(t *testing.T) {
	before, err := os.ReadDir("/proc/self/task")
	must.Do(t, err)
	wanted := len(before) + 20
	ReserveThreads(wanted)
	c, err := startChild(t, Placement{}) // time for threads that end
	must.Do(t, err)
	c.says(t)
	c.ends(t)
	threads, err := os.ReadDir("/proc/self/task")
	must.Do(t, err)
	if len(threads) < wanted {
		t.Errorf("got %d threads, want %d or more", len(threads), wanted)
	}
}

// TestSupervise checks that the threads are there, and that the processors are not more than wanted.
//
//nolint:paralleltest // the processors are those of the whole process
func TestSupervise(t *testing.T) {
	own := runtime.GOMAXPROCS(3)
	defer runtime.GOMAXPROCS(own)
	for _, tt := range []struct{ wanted, want int }{{4, 3}, {3, 3}, {1, 1}} {
		Supervise(tt.wanted)
		threads, err := os.ReadDir("/proc/self/task")
		must.Do(t, err)
		if got := runtime.GOMAXPROCS(3); got != tt.want || len(threads) < tt.wanted+spareThreads {
			t.Errorf("with %d processors: got %d and %d threads, want %d and %d or more", tt.wanted, got, len(threads), tt.want, tt.wanted+spareThreads)
		}
	}
}
