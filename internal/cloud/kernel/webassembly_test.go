//go:build linux

package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// inPlaceOfDeno speaks the driver's protocol on its standard input and output, as the driver does in WebAssembly.
const inPlaceOfDeno = `
read -r start
printf '{"type":"ready","content":{"python":"3","engine":"fake","version":"1"}}\n'
while read -r line; do
	id=$(printf %s "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
	case $line in
	*interrupt_request*) [ "$deaf" ] || printf '{"type":"reply","content":{"status":"error","ename":"KeyboardInterrupt"},"id":%s}\n' "$waits";;
	*'"wait"'*) waits=$id; printf '{"type":"armed","content":{}}\n';;
	*'"deaf"'*) deaf=1; printf '{"type":"armed","content":{}}\n';;
	*'"die"'*) printf '{"type":"ending","content":{"reason":"its memory is full"}}\n'; exit 3;;
	*)
		printf '{"type":"display_data","content":{"data":{"start":%s,"own":"%s in %s"},"metadata":{}}}\n' "$start" "$VAR" "$PWD"
		printf '{"type":"reply","content":{"status":"ok"},"id":%s}\n' "$id";;
	esac
done
`

func newWasm(t *testing.T) *Kernel {
	t.Helper()
	k := New(Spec{
		Wasm: &Wasm{
			Command: []string{"/bin/sh", "-c", inPlaceOfDeno}, Environ: []string{"PATH=" + os.Getenv("PATH"), "VAR=of the command"},
			Places: []string{"/one", "/two"}, Check: func() error { return nil },
		},
		Dir: "/home/of/code", Logger: slog.New(slog.DiscardHandler),
		Environ: func() ([]string, error) { return []string{"VAR=of the code", "A=1=2"}, nil },
	})
	t.Cleanup(func() { must.Do(t, k.Close()) })
	return k
}

// TestWasmStart checks the first line for the process of a Python in WebAssembly, and its own surroundings.
func TestWasmStart(t *testing.T) {
	t.Parallel()
	o := attach(t, newWasm(t)).run("1")
	if len(o.results) != 1 || o.reply.Status != "ok" {
		t.Fatalf("got %+v, want one answer", o)
	}
	var start struct {
		Type    string            `json:"type"`
		Env     map[string]string `json:"env"`
		Content startContent      `json:"content"`
	}
	must.Do(t, json.Unmarshal(o.results[0].Data["start"], &start))
	if start.Type != "start" || start.Content.Directory != "/home/of/code" {
		t.Errorf("got the first line %+v", start)
	}
	if diff := cmp.Diff(map[string]string{"VAR": "of the code", "A": "1=2"}, start.Env) + cmp.Diff([]string{"/one", "/two"}, start.Content.Places); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := string(o.results[0].Data["own"]); got != `"of the command in /"` {
		t.Errorf("the process has %s", got)
	}
	for name, change := range map[string]func(*Wasm){
		"it cannot be used": func(w *Wasm) { w.Check = func() error { return errors.New("it cannot be used") } },
		"no such file":      func(w *Wasm) { w.Command = []string{"/none"} },
	} {
		k := newWasm(t)
		change(k.spec.Wasm)
		if _, err := k.Start(t.Context()); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "start "+k.spec.Wasm.Command[0]) {
			t.Errorf("got error %v, want one with %q", err, name)
		}
	}
}

// TestWasmInterrupts checks that an interrupt is a line, and that a second one ends code which did not heed the first.
func TestWasmInterrupts(t *testing.T) {
	t.Parallel()
	k := newWasm(t)
	s := attach(t, k)
	armed := func(r *Request) bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return r.armed
	}
	r := s.submit("wait")
	patience.Until(t, "the code runs", func() bool { return armed(r) })
	k.Interrupt()
	if o := s.wait(r); o.reply.Name != "KeyboardInterrupt" {
		t.Errorf("got %+v, want a KeyboardInterrupt", o)
	}
	r = s.submit("deaf")
	patience.Until(t, "the code runs", func() bool { return armed(r) })
	for _, earlier := range []time.Duration{0, 0, heedTime} {
		k.mu.Lock()
		r.signalled = r.signalled.Add(-earlier)
		k.mu.Unlock()
		k.Interrupt()
	}
	if o := s.wait(r); !strings.Contains(o.reply.Value, "did not heed an interrupt") || r.signals != 2 {
		t.Errorf("got %+v after %d signals, want that it did not heed them", o, r.signals)
	}
	if o := s.run("die"); !strings.Contains(o.reply.Value, "its memory is full") {
		t.Errorf("got %+v, want the reason of the process", o)
	}
	if o := s.run("1"); o.reply.Status != "ok" {
		t.Errorf("afterwards: got %+v", o)
	}
}

// TestHeedTime checks after which time an interrupt ends a process, and the numbers of requests.
func TestHeedTime(t *testing.T) {
	t.Parallel()
	for ago, want := range map[time.Duration]bool{0: false, heedTime / 2: false, heedTime: true, time.Hour: true} {
		p := &process{process: &os.Process{Pid: 1 << 30}, cancel: func() {}} // no process has this id
		r := &Request{}
		if ago > 0 {
			r.signalled = time.Now().Add(-ago)
		}
		if got := p.endsHeedless(r); got != want || p.heedless != want || r.signalled.IsZero() {
			t.Errorf("%v after the first interrupt: got %v, want %v", ago, got, want)
		}
	}
	numbers := map[uint64]bool{}
	for range 100 {
		n := newNumber()
		if numbers[n] = true; n == 0 || n >= 1<<53 {
			t.Errorf("got the number %d, which some parsers of JSON round", n)
		}
	}
	if len(numbers) != 100 {
		t.Errorf("got %d different numbers of 100", len(numbers))
	}
}

// TestFork checks what a forked process gets, and that its connection has no deadline afterwards.
func TestFork(t *testing.T) {
	t.Parallel()
	sleep, err := exec.LookPath("sleep")
	must.Do(t, err)
	ours, theirs, err := child.SocketPair() // ours is the end of the forked process
	must.Do(t, err)
	defer ours.Close()
	k, _, _ := idle(t)
	k.spec.Dir = "/of/code"
	var within time.Duration
	var asked context.Context
	k.spec.Warm = &Warm{Fork: func(ctx context.Context) (*os.File, error) {
		deadline, _ := ctx.Deadline()
		asked, within = ctx, time.Until(deadline)
		return theirs, nil
	}}
	p := &process{kernel: k}
	stdio, err := p.openPipes()
	must.Do(t, err)
	pid, err := syscall.ForkExec(sleep, []string{"sleep", "60"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
	must.Do(t, err)
	got := make(chan string, 1)
	go func() { got <- answerFork(ours, pid) }()
	must.Do(t, p.fork(t.Context(), []string{"A=1", "B=2=3"}, stdio))
	want := `3 files {"environ":{"A":"1","B":"2=3"},"dir":"/of/code"}`
	if got := strings.TrimSpace(patience.Receive(t, "the setup", got)); got != want {
		t.Errorf("the process got %s, want %s", got, want)
	}
	if closed := theirs.Close(); asked.Err() == nil || !errors.Is(closed, os.ErrClosed) {
		t.Errorf("the wait for a process goes on: %v, and closing the zygote's file: %v, want it ended and closed", asked.Err() == nil, closed)
	}
	if p.process.Pid != pid || !p.untouched || within <= 0 || within > forkTimeout {
		t.Errorf("got the process %+v after at most %v, want %d, untouched", p.process, within, pid)
	}
	must.Do(t, p.process.Kill())
	if err := p.wait(); err == nil {
		t.Error("the process was killed, and its end is no error")
	}
	for _, f := range stdio {
		must.Do(t, f.Close())
	}
	must.Do(t, p.closePipes())
	p.link.Close()
	var limits []time.Time
	if err := withinLimits(t, &limits, nil); err != nil || len(limits) != 2 || limits[0].IsZero() || !limits[1].IsZero() {
		t.Errorf("got the deadlines %v and error %v, want one that is removed", limits, err)
	}
	if err := withinLimits(t, &limits, os.ErrClosed); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got error %v, want %v", err, os.ErrClosed)
	}
}

// TestForkThatFails checks the error for a zygote that passes no socket. A file that it passes instead is closed.
func TestForkThatFails(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"no file": unix.EAGAIN, "no socket": unix.ENOTSOCK} {
		file, err := os.Open(os.DevNull)
		must.Do(t, err)
		k, _, _ := idle(t)
		k.spec.Warm = &Warm{Fork: func(context.Context) (*os.File, error) {
			if name == "no file" {
				return nil, want
			}
			return file, nil
		}}
		p := &process{kernel: k}
		if err := p.fork(t.Context(), nil, nil); !errors.Is(err, want) || p.process != nil || p.link != nil || p.untouched {
			t.Errorf("%s: got the process %+v and error %v, want none and %v", name, p.process, err, want)
		}
		if err := file.Close(); errors.Is(err, os.ErrClosed) != (name == "no socket") {
			t.Errorf("%s: closing the file: %v", name, err)
		}
	}
}

// answerFork plays the forked process, and returns what it got.
func answerFork(conn *net.UnixConn, pid int) string {
	b, rights := make([]byte, 1), make([]byte, 256)
	_, n, _, _, err := conn.ReadMsgUnix(b, rights)
	if err != nil {
		return err.Error()
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return fmt.Sprint(messages, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	for _, fd := range fds {
		err = errors.Join(err, unix.Close(fd))
	}
	line := make([]byte, 1<<10)
	read, failed := conn.Read(line)
	_, wrote := fmt.Fprintf(conn, `{"pid":%d}`+"\n", pid)
	if err := errors.Join(err, failed, wrote); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d files %s", len(fds), line[:read])
}

// deadlines records the deadlines of a connection.
type deadlines struct{ all *[]time.Time }

func (d deadlines) SetDeadline(at time.Time) error {
	*d.all = append(*d.all, at)
	return nil
}

func withinLimits(t *testing.T, all *[]time.Time, err error) error {
	t.Helper()
	return within(t.Context(), deadlines{all}, time.Minute, func() error { return err })
}
