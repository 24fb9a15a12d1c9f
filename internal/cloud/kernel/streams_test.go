//go:build linux

package kernel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// However it is cut and buffered, printed text arrives complete and in order, also
// across the two streams.
func TestOrderOfOutput(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		r := s.submit("import sys\nfor i in range(20000):\n" +
			"    print(i, 'x' * (i % 300), file=sys.stderr if i % 7 == 0 else sys.stdout)\n    if i % 5000 == 0: sys.stdout.flush()")
		var got, want strings.Builder
		for i := range 20000 {
			name := "stdout"
			if i%7 == 0 {
				name = "stderr"
			}
			fmt.Fprintf(&want, "%s: %d %s\n", name, i, strings.Repeat("x", i%300))
		}
		// A piece may begin within a line.
		begun := false
		for done := false; !done; {
			e := s.next()
			switch {
			case e.Request != r:
			case e.Type == "stream":
				var c jupyter.StreamContent
				s.decode(e, &c)
				for line := range strings.Lines(c.Text) {
					if !begun {
						got.WriteString(c.Name + ": ")
					}
					got.WriteString(line)
					begun = !strings.HasSuffix(line, "\n")
				}
			case e.Type == "execute_reply":
				done = true
			}
		}
		if got.String() != want.String() {
			t.Errorf("the output is not what was printed: %d bytes, want %d", got.Len(), want.Len())
		}
	})
}

// TestOutputBeforeReply ends a cell while the thread that flushes has just taken all output.
func TestOutputBeforeReply(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		const lines = 10000
		for range 5 {
			o := s.run(fmt.Sprintf("import sys\nfor _ in range(%d): sys.stdout.write('x' * 200 + '\\n')\nwhile sys.stdout._output.texts: pass", lines))
			if got := strings.Count(o.stdout, "\n"); got != lines {
				t.Fatalf("%d lines came before the reply, want %d", got, lines)
			}
		}
	})
}

func TestOutputOfThreads(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		o := s.run("import sys, threading\ndef write(name):\n    for i in range(5000): sys.stdout.write('%s %d\\n' % (name, i))\n" +
			"threads = [threading.Thread(target=write, args=(name,)) for name in 'abcd']\nfor t in threads: t.start()\nfor t in threads: t.join()")
		next := map[string]int{}
		for line := range strings.Lines(o.stdout) {
			name, rest, _ := strings.Cut(line, " ")
			if want := fmt.Sprintf("%d\n", next[name]); rest != want {
				t.Fatalf("%q came, want %s %s", line, name, want)
			}
			next[name]++
		}
		if len(next) != 4 || next["a"]+next["b"]+next["c"]+next["d"] != 20000 {
			t.Errorf("%v lines came, want 20000 of four threads", next)
		}
		// A thread that outlives its cell is heard as well, although nothing
		// flushes for it.
		s.run("def late():\n    go.wait(); print('late')\ngo = threading.Event()\nthreading.Thread(target=late).start()")
		s.started(s.submit("go.set(); import time; time.sleep(60)"), "late")
		s.client.kernel.Interrupt()
	})
}

// Printed text arrives while the code runs, even if the code has replaced the parts of
// Python's library that the streams need.
func TestOutputWithoutSleep(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		s.run("import time; time.sleep = None; print(1)")
		s.started(s.submit("print('here')\nwhile True: pass"), "here")
		s.client.kernel.Interrupt()
	})
}

// The streams accept the same values as Python's own streams.
func TestTextsOfOutput(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		s.run("import os, sys, warnings\nwarnings.simplefilter('ignore')  # of a fork, since Python 3.12\nclass Loud(str):\n    def __str__(self): return 'loud'")
		for _, stream := range []string{"stdout", "stderr"} {
			for code, want := range map[string]string{
				"f.write('abc')":           "abc3",
				"f.write('')":              "0",
				"f.write(Loud('soft'))":    "soft4",
				"f.write('y' * 300)":       strings.Repeat("y", 300) + "300",
				"f.write('z' * 70000)":     strings.Repeat("z", 70000) + "70000",
				"f.writelines(['a', 'b'])": "abNone",
			} {
				o := s.run("f = sys." + stream + "\nn = " + code + "\nprint(n, end='', file=f)")
				if got := o.stdout + o.stderr; got != want || (o.stdout == "") != (stream == "stderr") {
					t.Errorf("%s.%s: stdout %.99q, stderr %.99q, errors %v", stream, code, o.stdout, o.stderr, o.errors)
				}
			}
			if o := s.run("sys." + stream + ".write(5)"); len(o.errors) != 1 || o.errors[0].Name != "TypeError" {
				t.Errorf("%s takes a number: %v, want one error and the exception %q", stream, o.errors, "TypeError")
			}
			// In a child nothing flushes: text goes to the descriptor at once.
			o := s.run("w = sys." + stream + ".write; w('parent ')\npid = os.fork()\nif pid == 0:\n    w('child '); os._exit(0)\nos.waitpid(pid, 0); w('again'); None")
			if got, want := o.stdout+o.stderr, "parent child again"; got != want {
				t.Errorf("%s of a parent and its child: %q, errors %v, want %q", stream, got, o.errors, want)
			}
		}
	})
}
