//go:build linux

package inside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/tunnel"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestMain is also the program that tests start: a runsc, a process of a room, one that stays, and one that
// gets signals.
func TestMain(m *testing.M) {
	Serve(tell) // the room starts this program, too
	status := 0
	switch os.Args[0] {
	case "lingering":
		_ = unix.Pause()
	case "runsc":
		if err := rehearseRunsc(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	case "enduring":
		if err := endureAll(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	default:
		runtime.LockOSThread() // no test changes the first thread, which Go never ends, and whose files /proc/self shows
		status = m.Run()
	}
	os.Exit(status) //nolint:forbidigo // this is the main function
}

// endOfProgram separates the program from the name of its directory.
const endOfProgram = "\ndirectory: "

// rehearseRunsc is a runsc that notes its commands, and whose sandbox is an envd that talks to its server.
// The file "no COMMAND" in its directory makes a command fail, and "slow COMMAND" makes it never end.
func rehearseRunsc(args []string) error {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	dir := string(program[strings.LastIndex(string(program), endOfProgram)+len(endOfProgram):])
	plain := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "--") })
	passed := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == plain[0] || strings.HasPrefix(a, "--dcache=") })
	third, _ := os.Readlink("/proc/self/fd/3")
	if info, err := os.Stat(third); err != nil || !info.IsDir() {
		third = "" // one of Go's own files
	}
	session, err := unix.Getsid(0)
	note := fmt.Sprintf("%s, environment %v, leads %v, file %s, %s\n", plain[0], os.Environ(), session == os.Getpid(), filepath.Base(third), strings.Join(passed, " "))
	calls, failed := os.OpenFile(dir+"/calls", os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if _, err = calls.WriteString(note); err != nil {
		return err
	}
	switch {
	case exists(dir + "/no " + plain[0]):
		return fmt.Errorf("no %s", plain[0])
	case exists(dir + "/slow " + plain[0]):
		return unix.Pause()
	case plain[0] == "run", plain[0] == "restore":
		return rehearseSandbox(plain[0] == "restore")
	}
	return nil
}

// rehearseSandbox is the envd in a sandbox of runsc. The lines of its log have its hello and the answers of
// its server. A connection to port 1 ends it, and one to port 2 makes gVisor panic.
func rehearseSandbox(restored bool) error {
	link := tunnel.NewLink(stdio{})
	server, err := link.Join()
	if restored && err != nil { // its server takes over from the one before
		server, err = link.Join()
	}
	if err != nil {
		return err
	}
	say := func(what ...any) error { return server.Log(wire.Encode(fmt.Sprint(what...))) }
	if err := server.Ready(); err != nil {
		return err
	}
	hello, err := json.Marshal(server.Hello)
	kills, failed := server.Kills(context.Background())
	_, refused := server.Dial(context.Background(), "a.test", 80)
	if err := errors.Join(err, say("hello ", string(hello)), say("kills ", kills, " ", failed), say("dial ", refused)); err != nil {
		return err
	}
	for {
		conn, err := server.Accept()
		if err != nil {
			return err
		}
		port, err := conn.Port()
		switch {
		case err != nil:
			return err
		case port == 1:
			return errors.New("it broke")
		case port == 2:
			if err := os.WriteFile(panicLog, []byte("panic: "+strings.Repeat("x", maxHead)+"\nstack\n"), 0o600); err != nil {
				return err
			}
			return errors.New("it broke")
		}
		// The first byte means that somebody listens.
		if _, err := fmt.Fprintf(conn, "\x00port %d", port); err != nil {
			return err
		}
		_ = conn.Close()
	}
}

// endureAll sends itself the signals that end a program that does not handle them.
func endureAll() error {
	if err := endureSignals(); err != nil {
		return err
	}
	for number := unix.Signal(1); number <= 34; number++ {
		if slices.Contains([]unix.Signal{unix.SIGKILL, unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGPROF, unix.SIGPIPE, unix.SIGCONT}, number) {
			continue
		}
		if err := unix.Kill(os.Getpid(), number); err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stdout, "alive")
	return nil
}

// TestEndureSignals checks that no signal ends a process that endures them.
func TestEndureSignals(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args[0] = "enduring"
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "alive\n" {
		t.Errorf("it ended with %v after %s", err, out)
	}
}

// runscProgram makes a directory with a runsc, and returns it.
func runscProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	from, err := os.Open("/proc/self/exe")
	must.Do(t, err)
	defer from.Close()
	to, err := os.OpenFile(dir+"/program", os.O_CREATE|os.O_WRONLY, 0o755)
	must.Do(t, err)
	_, err = io.Copy(to, from)
	must.Do(t, err)
	_, err = to.WriteString(endOfProgram + dir)
	must.Do(t, errors.Join(err, to.Close()))
	return dir
}

// enterOwnRoot changes the root directory of this thread to one with the files of the machine and an empty
// directory for runsc.
func enterOwnRoot(root string) error {
	err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", root, "tmpfs", 0, ""), os.Mkdir(root+runnerState, 0o700))
	if err != nil {
		return err
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := root + "/" + e.Name()
		target, err := os.Readlink("/" + e.Name())
		switch {
		case err == nil:
			err = os.Symlink(target, at)
		case e.IsDir():
			err = errors.Join(os.Mkdir(at, 0o755), unix.Mount("/"+e.Name(), at, "", unix.MS_BIND|unix.MS_REC, ""))
		default:
			continue
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(unix.Chroot(root), unix.Chdir("/"))
}

// gvisorRun is one sandbox of the runsc of the tests.
type gvisorRun struct {
	spec   wire.EnvdSpec
	marks  []string // files in the directory of runsc
	lacks  wire.FileName
	kills  int
	server func(*runscServer) error
}

// runscServer is the server of a sandbox, and has the directory of its runsc.
type runscServer struct {
	*wire.Conn
	dir string
}

// marked returns a function that calls do while there is a mark for runsc.
func (s *runscServer) marked(name string, do func() error) func() error {
	return func() error {
		err := os.WriteFile(s.dir+"/"+name, nil, 0o644)
		return errors.Join(err, do(), os.Remove(s.dir+"/"+name))
	}
}

// noted waits until runsc was called n times.
func (s *runscServer) noted(t *testing.T, n int) {
	t.Helper()
	patience.Until(t, "a command of runsc", func() bool {
		text, _ := os.ReadFile(s.dir + "/calls")
		return strings.Count(string(text), "\n") == n
	})
}

// works checks that a connection reaches the sandbox.
func (s *runscServer) works() error {
	if got, err := s.dial(3000); err != nil || got != "\x00port 3000" {
		return fmt.Errorf("a connection brought %q: %w", got, err)
	}
	return nil
}

// run runs the sandbox to its end. It returns the error of its envd, and the commands of runsc.
func (r gvisorRun) run(t *testing.T) (calls string, err error) {
	t.Helper()
	dir := runscProgram(t)
	must.Do(t, os.Mkdir(dir+"/memory", 0o700))
	for _, mark := range r.marks {
		must.Do(t, os.WriteFile(dir+"/"+mark, nil, 0o644))
	}
	server, control, failed := bridgeEnds()
	must.Do(t, failed)
	var other sync.WaitGroup
	other.Go(func() {
		defer server.Close()
		if err := r.server(&runscServer{server, dir}); err != nil {
			t.Errorf("%+v: its server: %v", r.spec, err)
		}
	})
	defer signal.Reset()
	root := t.TempDir()
	apart(t, func() error {
		defer control.Close()
		if err := enterOwnRoot(root); err != nil {
			return err
		}
		var files wire.Files
		for _, name := range []wire.FileName{wire.FileRunsc, wire.FileMemory, wire.FileConfig} {
			if name == r.lacks || name == wire.FileMemory && !r.spec.Restored {
				continue
			}
			passed, err := os.Open(map[bool]string{true: dir + "/program", false: dir + "/memory"}[name == wire.FileRunsc])
			if err != nil {
				return err
			}
			files.Add(name, passed)
		}
		g := newGuest(control, 1)
		g.Config, g.kills = json.RawMessage(`{"own":1}`), func() int { return r.kills }
		err = (&gvisor{}).envd(t.Context(), g, &r.spec, &files, nil)
		if files.Len() > 0 {
			t.Errorf("%+v: %d files stay open", r.spec, files.Len())
		}
		return nil
	})
	other.Wait()
	text, _ := os.ReadFile(dir + "/calls")
	return string(text), err
}

// expectLog checks the next line of the log of envd.
func (s *runscServer) expectLog(want string) error {
	m, _, err := s.Expect(wire.KindLog, 0)
	var line string
	if err == nil {
		err = json.Unmarshal(m.Spec, &line)
	}
	if err != nil || line != want {
		return fmt.Errorf("got the line %s, want %s: %w", line, want, err)
	}
	return nil
}

// dial connects to a port of the sandbox, and returns the bytes that come back.
func (s *runscServer) dial(port uint16) (string, error) {
	ours, theirs, err := wire.StreamPair()
	if err != nil {
		return "", err
	}
	defer ours.Close()
	err = errors.Join(s.SendFiles(wire.Message{Kind: wire.KindDial, Port: port}, wire.Lent(wire.FileStream, theirs)), theirs.Close(), ours.SetDeadline(patience.Deadline()))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(ours)
	return string(text), err
}

// last connects to a port that ends the sandbox, and waits for the end of its envd.
func (s *runscServer) last(port uint16) error {
	defer s.Deadline(context.Background(), patience.Limit)()
	_, err := s.dial(port)
	for failed := error(nil); failed == nil; {
		_, _, failed = s.Receive(0)
	}
	return err
}

// asks sends a message, and checks the error in its answer.
func (s *runscServer) asks(m wire.Message, files *wire.Files, want string) error {
	runtime.GC() // which closes files that nothing refers to: a command names runsc by a number
	runtime.GC()
	if err := s.SendFiles(m, files); err != nil {
		return err
	}
	return s.answers(m.Kind, want)
}

func (s *runscServer) answers(kind wire.Kind, want string) error {
	m, _, err := s.Receive(0)
	if err != nil || m.Kind != kind || m.Error != want {
		return fmt.Errorf("got the answer %+v, want %s with the error %q: %w", m, kind, want, err)
	}
	return nil
}

// begin checks what envd says first.
func (r gvisorRun) begin(s *runscServer, hello string) error {
	if _, _, err := s.Expect(wire.KindReady, 0); err != nil {
		return err
	}
	refused := "internet access is off for this sandbox"
	if r.spec.Egress {
		m, _, err := s.Expect(wire.KindEgress, 0)
		if err != nil || m.Host != "a.test" || m.Port != 80 {
			return fmt.Errorf("it asked for %+v: %w", m, err)
		}
		refused = "room: connect to a.test:80: refused here"
		if err := s.Send(wire.Message{Kind: wire.KindRefused, ID: m.ID, Error: "refused here"}); err != nil {
			return err
		}
	}
	return errors.Join(s.expectLog("hello "+hello), s.expectLog(fmt.Sprintf("kills %d <nil>", r.kills)), s.expectLog("dial "+refused))
}
