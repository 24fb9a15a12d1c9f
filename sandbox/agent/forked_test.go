package agent

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// forker is a Python that has imported the modules for the kernels of an engine, and forks
// them: most of a kernel's start-up time is imports. It ends with the test binary, and its
// kernels end with it.
type forker struct {
	mu     sync.Mutex // held from an order to its answer
	orders io.WriteCloser
	out    *bufio.Reader
	made   int
}

var forkers = map[string]func() (*forker, error){
	"plain":   sync.OnceValues(func() (*forker, error) { return newForker("plain") }),
	"ipython": sync.OnceValues(func() (*forker, error) { return newForker("ipython") }),
}

func newForker(engine string) (*forker, error) {
	cmd, err := python(engine, "--fork")
	if err != nil {
		return nil, err
	}
	stdin, err := cmd.StdinPipe() // its end tells the forker of this process's end
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f := &forker{orders: stdin, out: bufio.NewReader(stdout)}
	if err := awaitReady(f.out); err != nil {
		return nil, errors.Join(err, stdin.Close(), cmd.Wait())
	}
	return f, nil
}

// python returns a command for a kernel, which is not started yet.
func python(arg ...string) (*exec.Cmd, error) {
	path, err := exec.LookPath("python3")
	return exec.Command(path, append([]string{"-c", testKernel}, arg...)...), err
}

func awaitReady(r *bufio.Reader) error {
	line, err := r.ReadString('\n')
	if err == nil && line != "ready\n" {
		err = fmt.Errorf("got %q, want a kernel that is ready", line)
	}
	return err
}

// order sends an order and returns the answer, the number of its process.
func (f *forker) order(order map[string]any) (pid int, err error) {
	line, err := json.Marshal(order)
	if err != nil {
		return 0, err
	}
	if _, err := f.orders.Write(append(line, '\n')); err != nil {
		return 0, err
	}
	text, err := f.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("the process that forks kernels is gone: %w", err)
	}
	return strconv.Atoi(strings.TrimSuffix(text, "\n"))
}

// start starts a kernel whose temporary files are in dir.
func (f *forker) start(dir string) (stdin io.Writer, stdout *bufio.Reader, stop func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	in, out := filepath.Join(dir, fmt.Sprint("stdin", f.made)), filepath.Join(dir, fmt.Sprint("stdout", f.made))
	pid, err := f.order(map[string]any{"stdin": in, "stdout": out, "environ": placed(dir)})
	if err != nil {
		return nil, nil, nil, err
	}
	// Opening the pipes waits for the kernel, which then removes them.
	writer, err := os.OpenFile(in, os.O_WRONLY, 0)
	if err != nil {
		return nil, nil, nil, err
	}
	reader, err := os.Open(out)
	if err != nil {
		return nil, nil, nil, errors.Join(err, writer.Close())
	}
	stop = sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		writer.Close()
		_, _ = f.order(map[string]any{"end": pid}) // if the forker is gone, so are its kernels
		reader.Close()
	})
	return writer, bufio.NewReader(reader), stop, nil
}

// placed returns the variables of a kernel whose temporary files are in dir; it has those
// of this process as well.
func placed(dir string) map[string]string { return map[string]string{"TMPDIR": dir, "IPYTHONDIR": dir} }

// coldHost is a pythonHost whose kernel was not forked.
func coldHost(t *testing.T, engine string) *pythonHost {
	t.Helper()
	h := &pythonHost{engine: engine, temp: t.TempDir()}
	cmd, err := python(engine)
	must.Do(t, err)
	cmd.Env = os.Environ()
	for name, value := range placed(h.temp) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	stdin, err := cmd.StdinPipe()
	must.Do(t, err)
	stdout, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	h.in, h.out = stdin, bufio.NewReader(stdout)
	t.Cleanup(func() { stdin.Close(); cmd.Wait() })
	must.Do(t, awaitReady(h.out))
	return h
}

// surroundings prints traces that could show code how its kernel began.
const surroundings = `
import sys
found = {"modules": sorted(sys.modules), "main": sorted(sys.modules["__main__"].__dict__)}
import gc, json, locale, os, resource, signal, stat, tempfile, threading, warnings
frame, depth = sys._getframe(), 0
while frame:
    frame, depth = frame.f_back, depth + 1
def stream(s):
    return repr(type(s)), getattr(s, "encoding", None), getattr(s, "errors", None), hasattr(s, "fileno") and s.fileno()
open_ones = {}
for number in range(64):
    try:
        about = os.fstat(number)
    except OSError:
        continue
    # A thread of IPython opens and closes files and directories at its own time.
    if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
        open_ones[number] = stat.S_IFMT(about.st_mode), about.st_rdev, os.get_inheritable(number)
try:
    children = os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    children = None
umask = os.umask(0)
os.umask(umask)
found.update({
    "argv": sys.argv, "path": sys.path, "flags": repr(sys.flags), "cwd": os.getcwd(), "depth": depth,
    "environ": {name: value.replace(os.environ["TMPDIR"], "TEMP") for name, value in os.environ.items()},
    "descriptors": open_ones, "children": children, "umask": umask,
    "process": [os.getpgrp(), os.getsid(0), os.getuid(), os.nice(0)],
    "signals": {number: repr(signal.getsignal(number)) for number in signal.valid_signals()},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "limits": [resource.getrlimit(n) for n in (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK, resource.RLIMIT_NOFILE)],
    "threads": [[t.name, t.daemon, t is threading.main_thread()] for t in threading.enumerate()],
    "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()], "recursion": sys.getrecursionlimit(),
    "hooks": [repr(type(hook)) for hook in (sys.excepthook, sys.displayhook, sys.gettrace(), sys.getprofile())],
    "streams": [stream(s) for s in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)],
    "locale": locale.setlocale(locale.LC_ALL), "warnings": [repr(filter) for filter in warnings.filters],
    "temporary": tempfile.gettempdir() == os.environ["TMPDIR"],
})
print(json.dumps(found))`

// TestForkedIsAsCold checks that code cannot tell a kernel that was forked from one that was
// started, except by the order of sets: all kernels of a forker hash text in the same way.
func TestForkedIsAsCold(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		cold := coldHost(t, h.engine)
		found := map[*pythonHost]map[string]any{h: nil, cold: nil}
		for of := range found {
			var about map[string]any
			must.Do(t, json.Unmarshal([]byte(printed(t, of, surroundings)), &about))
			found[of] = about
		}
		if diff := cmp.Diff(found[cold], found[h]); diff != "" {
			t.Errorf("a forked kernel differs (-started +forked):\n%s", diff)
		}
		const chance = "import random, tempfile, uuid\nprint(random.random(), random.getstate(), tempfile.mktemp(), uuid.uuid4())"
		if printed(t, h, chance) == printed(t, newPythonHost(t, h.engine), chance) {
			t.Error("got the same random numbers in two forked kernels, want different ones")
		}
	})
}

// printed returns the output of code in a run of its own.
func printed(t *testing.T, h *pythonHost, code string) string {
	t.Helper()
	var rs runs
	r := h.begin(t, &rs, Params{})
	defer r.Close()
	return mustExec(t, r, code).Stdout
}

// TestForkedEndsWithTests checks that a kernel that would run for ever ends when the process
// that forked it sees the end of the test binary.
func TestForkedEndsWithTests(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain") // skips t if there is no Python
	f, err := newForker(h.engine)
	must.Do(t, err)
	stdin, stdout, _, err := f.start(h.temp)
	must.Do(t, err)
	must.Do(t, awaitReady(stdout))
	if _, err := io.WriteString(stdin, `{"code": "print('runs')\nwhile True: pass", "silent": false, "allow_stdin": false}`+"\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := stdout.ReadString('\n'); err != nil || !strings.Contains(line, "runs") {
		t.Fatalf("got %q, %v, want what the code prints and no error", line, err)
	}
	must.Do(t, f.orders.Close())
	if rest, err := io.ReadAll(stdout); err != nil || strings.Contains(string(rest), "reply") {
		t.Errorf("got %q, %v, want no reply of code that never ends, and no error", rest, err)
	}
}
