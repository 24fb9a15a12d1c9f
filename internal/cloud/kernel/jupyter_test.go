//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/kerneltest"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/zmq"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// newJupyter runs an installed kernel. It returns the directory of the kernel's
// connection files, too.
func newJupyter(t testing.TB, name string, options ...func(*Spec)) (*Kernel, string) {
	t.Helper()
	environ := kerneltest.Environ(t)
	spec, err := zmq.Dirs(environ, "/nowhere").Find(name)
	must.Do(t, err)
	return newForeign(t, spec, append(environ, "GLOBAL=global"), options...)
}

func newForeign(t testing.TB, spec *zmq.Spec, environ []string, options ...func(*Spec)) (*Kernel, string) {
	t.Helper()
	scratch := t.TempDir()
	s := Spec{
		Jupyter: spec, Dir: t.TempDir(), Scratch: scratch, Logger: slog.New(slog.DiscardHandler),
		Environ: func() ([]string, error) { return environ, nil },
	}
	for _, o := range options {
		o(&s)
	}
	k := New(s)
	t.Cleanup(func() {
		soon(t, "the end of the kernel", func() { k.Close() })
		if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
			t.Errorf("left in the directory of connection files: %v %v, want none and no error", left, err)
		}
	})
	return k, scratch
}

func (s *session) runWith(env map[string]string, code string) outcome {
	s.t.Helper()
	r := &Request{
		Header: jupyter.NewHeader("execute_request", "test", "test"), Env: env,
		Content: jupyter.Encode(jupyter.ExecuteRequest{Code: code, StoreHistory: true, StopOnError: true}),
	}
	must.Do(s.t, s.client.Submit(r))
	return s.wait(r)
}

// The features that all languages share, in each language's own terms.
func TestJupyterKernels(t *testing.T) {
	t.Parallel()
	hostile := "it's \"quoted\" $HOME `id` \\ \n é 😀"
	for name, words := range map[string]struct {
		set, show, many, global, variable, wait, fail, failure, directory string
	}{
		"bash": {
			set: "x=41", show: "echo $((x + 1))", many: "for i in {1..500}; do echo $i; done", global: `echo "$GLOBAL"`, variable: `echo "${K-unset}"`,
			wait: "until [ -e %q ]; do :; done\n", fail: "(exit 3)", directory: "pwd",
		},
		"python3": {
			set: "x = 41", show: "print(x + 1)", many: "for i in range(500): print(i)", global: "import os; print(os.environ['GLOBAL'])",
			variable: "import os; print(os.environ.get('K', 'unset'))", wait: "while not os.path.exists(%q): pass\n", fail: "1/0", failure: "ZeroDivisionError",
			directory: "print(os.getcwd())",
		},
		"deno": {
			set: "let x: number = 41", show: "console.log(x + 1)", many: "for (let i = 0; i < 500; i++) console.log(i)", global: "console.log(process.env.GLOBAL)",
			variable: "console.log(process.env.K ?? 'unset')",
			wait:     "while (true) { try { Deno.statSync(%q); break } catch {} }\n", fail: "throw new TypeError('no')", failure: "TypeError",
			directory: "console.log(process.cwd())",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, _ := newJupyter(t, name)
			s := attach(t, k)
			for _, test := range []struct{ code, stdout string }{
				{words.set, ""},
				{words.show, "42\n"},
				{words.global, "global\n"},
				{words.directory, k.spec.Dir + "\n"},
				{words.variable, "unset\n"},
			} {
				if o := s.run(test.code); o.stdout != test.stdout || len(o.errors) > 0 || o.reply.Status != "ok" {
					t.Errorf("%q: stdout %q, stderr %q, errors %v, reply %+v, want stdout %q, no Python error and reply status %q", test.code, o.stdout, o.stderr, o.errors, o.reply, test.stdout, "ok")
				}
			}
			if o := s.runWith(map[string]string{"K": hostile, "GLOBAL": "other"}, words.variable); o.stdout != hostile+"\n" || o.reply.Status != "ok" {
				t.Errorf("a variable of the call: %q, %v, want stdout %v and reply status %q", o.stdout, o.errors, hostile+"\n", "ok")
			}
			if got := s.run(words.variable).stdout + s.run(words.global).stdout; got != "unset\nglobal\n" {
				t.Errorf("after the call: %q, want %q", got, "unset\nglobal\n")
			}
			// The first one fails while the second one waits.
			gate := filepath.Join(t.TempDir(), "gate")
			failed, aborted := s.submit(fmt.Sprintf(words.wait, gate)+words.fail), s.submit(words.show)
			must.Do(t, os.WriteFile(gate, nil, 0o600))
			if o := s.wait(failed); len(o.errors) != 1 || o.errors[0].Name != words.failure || o.reply.Status != "error" {
				t.Errorf("%q: got %+v, want one error, the exception %v and reply status %q", words.fail, o, words.failure, "error")
			}
			if o := s.wait(aborted); o.reply.Status != "aborted" || o.stdout != "" {
				t.Errorf("behind an error: %+v, want reply status %q and no stdout", o, "aborted")
			}
			if o := s.runWith(map[string]string{"K": "v"}, words.many); strings.Count(o.stdout, "\n") != 500 || o.reply.Status != "ok" {
				t.Errorf("500 lines: %d, stderr %q, %v, want all and reply status %q", strings.Count(o.stdout, "\n"), o.stderr, o.errors, "ok")
			}
			// No request after an error is skipped.
			for range 50 {
				if o := s.run(words.fail); o.reply.Status != "error" {
					t.Errorf("got %+v, want reply status %q", o, "error")
				}
				if o := s.run(words.show); o.stdout != "42\n" {
					t.Errorf("after an error: %+v, want stdout %q", o, "42\n")
				}
			}
			for _, request := range []string{"kernel_info_request", "is_complete_request", "nonsense_request"} {
				r := &Request{Header: jupyter.NewHeader(request, "test", "test"), Content: []byte(`{"code":"1"}`)}
				must.Do(t, s.client.Submit(r))
				o := s.wait(r)
				if want := []string{"status", ReplyType(request), "status"}; !slices.Equal(o.order, want) {
					t.Errorf("%s: got %v, want %v", request, o.order, want)
				}
			}
			must.Do(t, k.Restart(t.Context()))
			if o := s.run(words.show); o.stdout == "42\n" {
				t.Errorf("state survived a restart: %+v", o)
			}
		})
	}
}

func TestJupyterInterrupt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ code, failure, status string }{
		// A builtin: between two commands bash may lose input from a terminal.
		"bash":    {"echo here; read -r", "", "abort"},
		"python3": {"import time; print('here'); time.sleep(600)", "KeyboardInterrupt", "error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, _ := newJupyter(t, name)
			s := attach(t, k)
			for range 3 {
				r := s.submit(test.code)
				s.started(r, "here")
				k.Interrupt()
				o := s.wait(r)
				if o.reply.Status != test.status {
					t.Errorf("got the reply %+v, want status %q", o.reply, test.status)
				}
				if test.failure != "" && (len(o.errors) != 1 || o.errors[0].Name != test.failure) {
					t.Errorf("got the errors %+v, want one %s", o.errors, test.failure)
				}
			}
			if o := s.run("echo = 1"); o.reply.Status == "aborted" {
				t.Errorf("after interrupts: %+v", o)
			}
		})
	}
}

func TestJupyterStdinAndDisplays(t *testing.T) {
	t.Parallel()
	k, _ := newJupyter(t, "python3")
	s := attach(t, k)
	r := s.submit("print('hello ' + input('who? '))", func(e *jupyter.ExecuteRequest) { e.AllowStdin = true })
	for e := s.next(); e.Channel != jupyter.Stdin; e = s.next() {
	}
	must.Do(t, s.client.Answer("world"))
	if o := s.wait(r); o.stdout != "hello world\n" {
		t.Errorf("got %+v, want stdout %q", o, "hello world\n")
	}
	// The client that made the request is gone: the question has no answer.
	gone := attach(t, k)
	r = gone.submit("input()", func(e *jupyter.ExecuteRequest) { e.AllowStdin = true })
	for e := gone.next(); e.Channel != jupyter.Stdin; e = gone.next() {
	}
	gone.client.Close()
	if o := s.wait(r); len(o.errors) != 1 || o.errors[0].Name != "EOFError" {
		t.Errorf("got %+v, want one error and the exception %q", o.errors, "EOFError")
	}
	if o := s.run("6 * 7"); o.text() != "42" || !slices.Equal(o.order, []string{"status", "execute_input", "execute_result", "execute_reply", "status"}) {
		t.Errorf("got %+v, want text %q and the messages %v", o, "42", []string{"status", "execute_input", "execute_result", "execute_reply", "status"})
	}
	r = s.submit("from comm import create_comm; c = create_comm('t', data={'a': 1}, buffers=[b'\\x00\\xff'])")
	for {
		e := s.next()
		if e.Type == "comm_open" {
			if len(e.Buffers) != 1 || string(e.Buffers[0]) != "\x00\xff" {
				t.Errorf("buffers %q, want one, %q", e.Buffers, "\x00\xff")
			}
			break
		}
	}
	s.wait(r)
}

// A lot of output arrives complete and in order.
func TestJupyterOutput(t *testing.T) {
	t.Parallel()
	k, _ := newJupyter(t, "python3")
	s := attach(t, k)
	o := s.run("for i in range(200000): print(i)")
	lines := strings.Split(strings.TrimSuffix(o.stdout, "\n"), "\n")
	if len(lines) != 200000 || lines[0] != "0" || lines[199999] != "199999" {
		t.Errorf("%d lines, the last %q, want 200000, from %q to %q", len(lines), lines[len(lines)-1], "0", "199999")
	}
	if o := s.run("'x' * (8 << 20)"); len(o.text()) != 8<<20+2 {
		t.Errorf("a result of %d bytes, want %d", len(o.text()), 8<<20+2)
	}
}

func TestJupyterKernelDies(t *testing.T) {
	t.Parallel()
	k, scratch := newJupyter(t, "bash")
	s := attach(t, k)
	r := s.submit("echo here; kill -9 $PPID")
	if o := s.wait(r); len(o.errors) != 1 || o.errors[0].Name != Died.Name {
		t.Errorf("got %+v, want one error and the exception %q", o, Died.Name)
	}
	if o := s.run("echo back"); o.stdout != "back\n" {
		t.Errorf("got %+v, want stdout %q", o, "back\n")
	}
	if left, _ := os.ReadDir(scratch); len(left) != 1 {
		t.Errorf("connection files of the dead: %v, want one", left)
	}
	// A restart ends the running code, and its children.
	r = s.submit("echo here; sleep 4242")
	s.started(r, "here")
	pid := k.proc.process.Pid
	must.Do(t, k.Restart(t.Context()))
	if o := s.wait(r); len(o.errors) != 1 || o.errors[0].Name != Ended.Name {
		t.Errorf("got %+v, want one error and the exception %q", o, Ended.Name)
	}
	if err := unix.Kill(-pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the process group lives: %v, want unix.ESRCH", err)
	}
}

// writeSpec installs a kernel whose program is a shell script.
func writeSpec(t testing.TB, script, more string) *zmq.Spec {
	t.Helper()
	dir := t.TempDir()
	data := `{"argv":["/bin/sh","-c",` + string(jupyter.Encode(script)) + `,"{connection_file}"],"display_name":"Script","language":"script"` + more + `}`
	must.Do(t, os.MkdirAll(filepath.Join(dir, "script"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, "script", "kernel.json"), []byte(data), 0o644))
	spec, err := zmq.Specs{dir}.Find("SCRIPT")
	must.Do(t, err)
	return spec
}

func TestJupyterKernelThatDoesNotStart(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"echo the reason >&2; exit 3": "exit status 3\nthe reason",
		"exit 0":                      "exit status 0",
		// A port that was free a moment ago is taken: other ports are tried.
		"[ -e begun ] && { echo the reason; exit 4; }; touch begun; echo 'Error: Address already in use (os error 98)' >&2; exit 1": "exit status 4\nthe reason",
	} {
		k, _ := newForeign(t, writeSpec(t, script, ""), []string{"PATH=/usr/bin:/bin"})
		_, err := k.Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), "kernel: start script: ended before it was ready: "+want) {
			t.Errorf("%s: got %v, want an error with %q", script, err, "kernel: start script: ended before it was ready: "+want)
		}
		s := attach(t, k)
		if o := s.run("1"); len(o.errors) != 1 || o.errors[0].Name != "KernelStartError" {
			t.Errorf("%s: got %+v, want one error and the exception %q", script, o, "KernelStartError")
		}
	}
	spec := &zmq.Spec{Name: "nothing", Argv: []string{"no-such-program"}}
	k, _ := newForeign(t, spec, []string{"PATH=/usr/bin:/bin"})
	if _, err := k.Start(t.Context()); err == nil || !strings.Contains(err.Error(), `the program "no-such-program" is not in PATH`) {
		t.Errorf("got %v, want an error with %q", err, `the program "no-such-program" is not in PATH`)
	}
	begun := make(chan struct{})
	k, _ = newForeign(t, writeSpec(t, "sleep 600", ""), nil, func(s *Spec) {
		s.Environ = func() ([]string, error) { close(begun); return []string{"PATH=/usr/bin:/bin"}, nil }
	})
	started := make(chan error, 1)
	go func() { _, err := k.Start(t.Context()); started <- err }()
	<-begun
	k.Close()
	if err := <-started; !errors.Is(err, ErrClosed) {
		t.Errorf("closed while it starts: %v, want ErrClosed", err)
	}
}
