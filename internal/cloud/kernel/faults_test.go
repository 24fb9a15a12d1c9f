//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// started waits until the cell reports that it has started.
func (s *session) started(r *Request, marker string) {
	s.t.Helper()
	for {
		e := s.next()
		if e.Request == r && e.Type == "stream" && strings.Contains(string(e.Content), marker) {
			return
		}
		if e.Request == r && e.Type == "execute_reply" {
			s.t.Fatalf("ended before it said %q: %s", marker, e.Content)
		}
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		k := newKernel(t, python)
		s := attach(t, k)
		for _, code := range []string{
			"import time\nprint('here')\ntime.sleep(1000)",
			"print('here')\nwhile True: pass",
			"import subprocess\nprint('here')\nsubprocess.run(['sleep', '1000'])",
			"import asyncio\nprint('here')\nawait asyncio.sleep(1000)\nprint('late')",
			"print('here')\nwhile True: print('x' * 1000)",
		} {
			r := s.submit(code)
			s.started(r, "here")
			k.Interrupt()
			o := s.wait(r)
			if len(o.errors) != 1 || o.errors[0].Name != "KeyboardInterrupt" || o.reply.Status != "error" {
				t.Errorf("%q: errors %+v, reply %+v, want one error, the exception %q and reply status %q", code, o.errors, o.reply, "KeyboardInterrupt", "error")
			}
		}
		if o := s.run("await asyncio.sleep(0.01)\n'alive'"); o.text() != "'alive'" || o.stdout != "" {
			t.Errorf("after interrupts: %+v, want text %q and no stdout", o, "'alive'")
		}
		k.Interrupt() // of nothing
		if o := s.run("1"); o.text() != "1" {
			t.Errorf("an interrupt of nothing struck: %+v, want text %q", o, "1")
		}
	})
}

// An interrupt that arrives before the cell has begun must not be lost.
func TestInterruptAtOnce(t *testing.T) {
	t.Parallel()
	k := newKernel(t, richPython(t))
	s := attach(t, k)
	for i := range 20 {
		r := s.submit("import time; time.sleep(60)")
		if i > 0 {
			for e := s.next(); e.Request != r; e = s.next() {
			}
		}
		s.client.Cancel(r)
		o := outcome{}
		if i > 0 {
			o = s.wait(r)
		} else if _, err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i > 0 && o.reply.Name != "KeyboardInterrupt" {
			t.Fatalf("reply %+v", o.reply)
		}
	}
}

// A signal that arrives just before a blocking call has no effect before that call is over.
func TestInterruptWithoutEffect(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		k := newKernel(t, python)
		s := attach(t, k)
		for range 3 {
			r := s.submit("import time; print('begun', flush=True); time.sleep(600)")
			s.started(r, "begun")
			k.mu.Lock() // the signal itself is left out
			err := k.proc.send(&link.Command{Type: "interrupt_request", Seq: 1})
			k.mu.Unlock()
			if o := s.wait(r); err != nil || o.reply.Name != "KeyboardInterrupt" {
				t.Fatalf("error %v, reply %+v, want a %s", err, o.reply, "KeyboardInterrupt")
			}
		}
		// Nor has a signal that Linux gives to another thread, and the code may have taken all
		// threads.
		r := s.submit(`import threading
def refuse(*_): raise RuntimeError("can't start new thread")
start, threading.Thread.start = threading.Thread.start, refuse
print('begun', flush=True)
try: time.sleep(600)
finally: threading.Thread.start = start`)
		s.started(r, "begun")
		k.mu.Lock()
		err := k.proc.send(&link.Command{Type: "interrupt_request", Seq: 1})
		k.mu.Unlock()
		if o := s.wait(r); err != nil || o.reply.Name != "KeyboardInterrupt" {
			t.Errorf("without threads: error %v, reply %+v, want a %s", err, o.reply, "KeyboardInterrupt")
		}
		// A signal that has had its effect is not sent again: the code after it continues.
		r = s.submit("try:\n    print('begun', flush=True); time.sleep(600)\nexcept KeyboardInterrupt:\n    end = time.time() + 0.5\n    while time.time() < end: pass\n    print('whole')")
		s.started(r, "begun")
		k.Interrupt()
		if o := s.wait(r); o.reply.Status != "ok" || !strings.HasSuffix(o.stdout, "whole\n") {
			t.Errorf("reply %+v, stdout %q, want the end of what catches the interrupt", o.reply, o.stdout)
		}
	})
}

// Python drops exceptions in a finalizer, and IPython's own code has finalizers as well.
func TestInterruptInAFinalizer(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		o := s.run(`import os, signal, time
class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(600)
x = Finalized()
del x
time.sleep(600)`)
		if o.reply.Name != "KeyboardInterrupt" || o.stderr != "" {
			t.Errorf("got the reply %+v, stderr %q, want %q and nothing", o.reply, o.stderr, "KeyboardInterrupt")
		}
		// The code's own exceptions in a finalizer are reported as usual.
		if o := s.run("class F:\n    def __del__(self): raise KeyboardInterrupt('own')\nF(); 1"); o.reply.Status != "ok" || !strings.Contains(o.stderr, "Exception ignored in") {
			t.Errorf("got the reply %+v, stderr %q, want %q and %q", o.reply, o.stderr, "ok", "Exception ignored in")
		}
	})
}

// An interrupt may strike at an instruction that belongs to no line.
func TestErrorWithoutALine(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		o := s.run(`import sys
def lineless(depth):
    if depth: lineless(depth - 1)
    raise ValueError("lineless")
n = len(lineless.__code__.co_code) // 2
if sys.version_info >= (3, 11):
    lineless.__code__ = lineless.__code__.replace(co_linetable=bytes(0xf8 | min(8, n - i) - 1 for i in range(0, n, 8)))
lineless(100)`)
		if o.reply.Name != "ValueError" || o.stdout+o.stderr != "" || len(o.errors) != 1 {
			t.Fatalf("got the reply %+v, stdout %q, stderr %q, want one %q and no output", o.reply, o.stdout, o.stderr, "ValueError")
		}
		if text := strings.Join(o.errors[0].Traceback, "\n"); !strings.Contains(text, "lineless(100)") || strings.Contains(text, "None") {
			t.Errorf("got the traceback %s, want the line that called and a number for every line", text)
		}
	})
}

func TestDeath(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		k := newKernel(t, python)
		s := attach(t, k)
		s.run("x = 1")
		pid, err := strconv.Atoi(s.run("import os, subprocess; child = subprocess.Popen(['sleep', '600']); child.pid").text())
		must.Do(t, err)
		r := s.submit("print('last words', flush=True)\nos.write(2, b'raw words')\nos.kill(os.getpid(), 9)")
		o := s.wait(r)
		if o.stdout != "last words\n" || o.stderr != "raw words" {
			t.Errorf("got stdout %q, stderr %q, want %q, %q", o.stdout, o.stderr, "last words\n", "raw words")
		}
		if o.reply.Name != Died.Name || len(o.errors) != 1 {
			t.Errorf("got the reply %+v, errors %v, want one %s", o.reply, o.errors, Died.Name)
		}
		if o := s.run("x"); o.reply.Name != "NameError" || o.reply.ExecutionCount != 1 {
			t.Errorf("after death: %+v, want the reply %q and the count 1", o.reply, "NameError")
		}
		gone(t, pid)
	})
}

// gone waits until a process, which need not be our child, has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Skipf("no descriptor of a process on this kernel: %v", err)
	}
	defer unix.Close(fd)
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000); n != 1 {
		t.Errorf("process %d is still there: %v", pid, err)
	}
}

// Code that breaks the driver's way of hearing envd ends the kernel; the kernel does not hang.
func TestDriverThatHearsNothing(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		for _, code := range []string{"import builtins; del builtins.len", "import json; json.loads = None"} {
			k := newKernel(t, python)
			s := attach(t, k)
			s.run(code)
			// A driver that died at once has been replaced by now.
			if o := s.run("'json' in globals() or 'builtins' in globals()"); o.reply.Name != Died.Name && o.text() != "False" {
				t.Errorf("%s: the next code gives %+v, want the reply %q or a fresh kernel", code, o, Died.Name)
			}
			if o := s.run("len('afterwards')"); o.text() != "10" {
				t.Errorf("%s: afterwards: %+v, want text %q", code, o, "10")
			}
		}
	})
}

// TestDriverThatFails checks that a driver whose main thread ends leaves no kernel that answers nothing,
// even if a thread of the code goes on.
func TestDriverThatFails(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		o := s.run("import threading, time, _e2bctl_kernel.kernel as driver\nthreading.Thread(target=time.sleep, args=(600,)).start()\ndriver.Kernel._reply = None")
		if o.reply.Name != Died.Name {
			t.Errorf("got %+v, want the reply %q", o, Died.Name)
		}
	})
}

func TestDeathWhileIdleIsTold(t *testing.T) {
	t.Parallel()
	k := newKernel(t, richPython(t))
	s := attach(t, k)
	s.run("import os, threading; threading.Timer(0.05, os._exit, [3]).start()")
	for {
		e := s.next()
		if e.Request == nil && strings.Contains(string(e.Content), jupyter.StateRestarting) {
			break
		}
	}
	if o := s.run("1"); o.text() != "1" {
		t.Errorf("got %+v, want text %q", o, "1")
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	k := newKernel(t, richPython(t))
	s := attach(t, k)
	running := s.submit("x = 1; print('here'); import time; time.sleep(60)")
	s.started(running, "here")
	waiting := s.submit("'x' in globals()")
	must.Do(t, k.Restart(t.Context()))
	if o := s.wait(running); o.reply.Name != Ended.Name {
		t.Errorf("running: %+v, want the reply %q", o.reply, Ended.Name)
	}
	if o := s.wait(waiting); o.text() != "False" {
		t.Errorf("waiting: %+v, want text %q", o, "False")
	}
}

func TestCloseEndsWhatRunsAndWaits(t *testing.T) {
	t.Parallel()
	k := newKernel(t, richPython(t))
	s := attach(t, k)
	running := s.submit("print('here'); import time; time.sleep(60)")
	s.started(running, "here")
	waiting := s.submit("1")
	must.Do(t, k.Close())
	for _, r := range []*Request{running, waiting} {
		if o := s.wait(r); o.reply.Name != Ended.Name || !r.finished() {
			t.Errorf("got %+v, the request has ended: %v, want the reply %q and true", o.reply, r.finished(), Ended.Name)
		}
	}
	if err := s.client.Submit(&Request{Header: jupyter.NewHeader("execute_request", "", "")}); !errors.Is(err, ErrClosed) {
		t.Errorf("Submit after Close: %v, want ErrClosed", err)
	}
}

func TestStartFailure(t *testing.T) {
	t.Parallel()
	_, plain := pythons()
	if plain == "" {
		t.Skip("no second Python here")
	}
	k := newKernel(t, "/bin/false")
	s := attach(t, k)
	if o := s.run("1"); o.reply.Name != "KernelStartError" {
		t.Errorf("got %+v, want the reply %q", o.reply, "KernelStartError")
	}
	k = newKernel(t, plain)
	k.spec.Python = []string{"/bin/sh", "-c", "echo reason >&2; exit 3"}
	s = attach(t, k)
	if o := s.run("1"); !strings.Contains(o.reply.Value, "exit status 3") || !strings.Contains(o.reply.Value, "reason") {
		t.Errorf("got %+v, want %q and %q in its value", o.reply, "exit status 3", "reason")
	}
}

func TestFailureAbortsWhatWaits(t *testing.T) {
	t.Parallel()
	k := newKernel(t, richPython(t))
	s, other := attach(t, k), attach(t, k)
	first := s.submit("import time; time.sleep(0.5); 1/0")
	second, third := s.submit("2"), other.submit("3")
	if o := s.wait(first); o.reply.Name != "ZeroDivisionError" {
		t.Errorf("got %+v, want the reply %q", o.reply, "ZeroDivisionError")
	}
	if o := s.wait(second); o.reply.Status != "aborted" || strings.Contains(strings.Join(o.order, " "), "execute_input") {
		t.Errorf("got %+v, want reply status %q and no %s", o, "aborted", "execute_input")
	}
	if o := other.wait(third); o.text() != "3" {
		t.Errorf("the other client's: %+v, want text %q", o, "3")
	}
	keep := func(r *jupyter.ExecuteRequest) { r.StopOnError = false }
	first, second = s.submit("time.sleep(0.2); 1/0", keep), s.submit("5")
	s.wait(first)
	if o := s.wait(second); o.text() != "5" {
		t.Errorf("without stop_on_error: %+v, want text %q", o, "5")
	}
}

func TestStdin(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		k := newKernel(t, python)
		s := attach(t, k)
		allow := func(r *jupyter.ExecuteRequest) { r.AllowStdin = true }
		answer := func(r *Request, n int) {
			for n > 0 {
				if e := s.next(); e.Channel == jupyter.Stdin && e.Request == r {
					var c jupyter.InputRequest
					s.decode(e, &c)
					must.Do(t, s.client.Answer(fmt.Sprintf("%s/%v", c.Prompt, c.Password)))
					n--
				}
			}
		}
		r := s.submit("import getpass\nprint('before')\na = input('name')\nb = getpass.getpass('word')\nprint(a, b)", allow)
		answer(r, 2)
		if o := s.wait(r); o.stdout != "name/false word/true\n" {
			t.Errorf("got %+v, want stdout %q", o, "name/false word/true\n")
		}
		r = s.submit(`
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    print(sorted(pool.map(input, 'abcdefgh')))`, allow)
		answer(r, 8)
		if o := s.wait(r); !strings.Contains(o.stdout, "'a/false', 'b/false'") {
			t.Errorf("got %+v, want %q in stdout", o, "'a/false', 'b/false'")
		}
		r = s.submit("input('never')", allow)
		for e := s.next(); e.Channel != jupyter.Stdin; e = s.next() {
		}
		k.Interrupt()
		if o := s.wait(r); o.reply.Name != "KeyboardInterrupt" {
			t.Errorf("got %+v, want the reply %q", o.reply, "KeyboardInterrupt")
		}
		r = s.submit("input('again')", allow)
		answer(r, 1)
		if o := s.wait(r); o.text() != "'again/false'" {
			t.Errorf("after an interrupted question: %+v, want text %q", o, "'again/false'")
		}
		watcher := attach(t, k)
		r = s.submit("input('gone')", allow)
		for e := s.next(); e.Channel != jupyter.Stdin; e = s.next() {
		}
		s.client.Close()
		for e := watcher.next(); e.Type != "error"; e = watcher.next() {
			if e.Channel == jupyter.Stdin {
				t.Errorf("the question went to another client")
			}
		}
		<-r.Done()
	})
}

func TestEnvOfOneExecution(t *testing.T) {
	t.Parallel()
	k := newKernel(t, richPython(t))
	s := attach(t, k)
	r := &Request{
		Header: jupyter.NewHeader("execute_request", "", ""), Env: map[string]string{"A": "it's\n\"a\"", "HOME": "elsewhere"},
		Content: jupyter.Encode(jupyter.ExecuteRequest{Code: "import os; os.environ['A'], os.environ['HOME']"}),
	}
	must.Do(t, s.client.Submit(r))
	if o := s.wait(r); o.text() != `('it\'s\n"a"', 'elsewhere')` {
		t.Errorf("got %+v, want text %q", o, `('it\'s\n"a"', 'elsewhere')`)
	}
	if o := s.run("'A' in os.environ, os.environ['HOME'] == 'elsewhere'"); o.text() != "(False, False)" {
		t.Errorf("got %+v, want text %q", o, "(False, False)")
	}
}

// A variable that no process can have, and code that removes the mapping of variables, do no harm
// to the kernel.
func TestEnvThatCannotBe(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		in := func(env map[string]string, code string) outcome {
			r := &Request{Header: jupyter.NewHeader("execute_request", "", ""), Env: env, Content: jupyter.Encode(jupyter.ExecuteRequest{Code: code})}
			must.Do(t, s.client.Submit(r))
			return s.wait(r)
		}
		s.run("x = 1; import os; environ = os.environ")
		for _, name := range []string{"", "A=B", "A\x00B"} {
			if o := in(map[string]string{name: "1"}, "x = 2"); len(o.errors) != 1 || o.reply.Status != "error" {
				t.Errorf("%q: got %+v, want one error and reply status %q", name, o, "error")
			}
		}
		s.run("os.environ = None")
		if o := in(map[string]string{"A": "1"}, "environ['A'], x"); o.text() != "('1', 1)" {
			t.Errorf("got %+v, want text %q", o, "('1', 1)")
		}
		if o := s.run("'A' in environ"); o.text() != "False" {
			t.Errorf("got %+v, want text %q", o, "False")
		}
	})
}

func TestFloods(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		for _, test := range []struct {
			code string
			size int
		}{
			{"for i in range(1000000): print()", 1000000},
			{"import sys; sys.stdout.write('y' * (16 << 20)); None", 16 << 20},
			{"import os; os.system('head -c 16777216 /dev/zero | tr \"\\\\0\" z'); None", 16 << 20},
		} {
			events, size := 0, 0
			r := s.submit(test.code)
			for done := false; !done; {
				e := s.next()
				switch {
				case e.Request != r:
				case e.Type == "stream":
					var c jupyter.StreamContent
					s.decode(e, &c)
					events++
					size += len(c.Text)
				case e.Type == "execute_reply":
					done = true
				}
			}
			if size != test.size || events > 10000 {
				t.Errorf("%q: %d bytes in %d events, want %d", test.code, size, events, test.size)
			}
		}
	})
}

// TestHijackedDriver: a process that took the driver's socket with it out of the session, and
// asks without reading the answers, does not hold up the kernel.
func TestHijackedDriver(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		k := newKernel(t, python)
		s := attach(t, k)
		hijacker := filepath.Join(t.TempDir(), "pid")
		t.Cleanup(func() { endNamed(t, hijacker) })
		r := s.submit(fmt.Sprintf(`import os, signal, socket, time
sock = socket.socket(fileno=os.dup(3))
leader = os.getpid()
print('here', flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(%q, 'w') as f: f.write(str(os.getpid()))
        os.kill(leader, signal.SIGSTOP)  # nor shall that one read the answers
        signal.alarm(3600)  # the test ends it before
        try:
            while True:
                sock.sendall(b'{"type":"sync","seq":1,"content":{}}\n' * 1000)
        finally:
            time.sleep(3600)
    os._exit(0)
time.sleep(3600)`, hijacker))
		s.started(r, "here")
		stopped(t, k)
		must.Do(t, k.Restart(patience.Context(t)))
		s.wait(r)
		if o := s.run("6 * 7"); o.text() != "42" {
			t.Errorf("after the restart: %+v, want text %q", o, "42")
		}
	})
}

// endNamed kills the process whose number is in a file, if there is one.
func endNamed(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		return
	}
	if pid, err := strconv.Atoi(string(text)); err != nil {
		t.Errorf("the file has %q, want a number", text)
	} else if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Error(err)
	}
}

// stopped waits until the kernel's process is stopped.
func stopped(t *testing.T, k *Kernel) {
	t.Helper()
	k.mu.Lock()
	name := fmt.Sprintf("/proc/%d/stat", k.proc.process.Pid)
	k.mu.Unlock()
	patience.Until(t, "the process is stopped", func() bool {
		stat, err := os.ReadFile(name)
		must.Do(t, err)
		return strings.Contains(string(stat), ") T ")
	})
}
