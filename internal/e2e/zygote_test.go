//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// forked is a Python expression that reports whether the kernel was forked from the zygote.
const forked = `b"--zygote" in open("/proc/self/cmdline", "rb").read()`

// startsCold has a variable that keeps a kernel from being forked. A cloud that keeps no sandbox ready then
// loads no modules for kernels, which costs more than most tests.
var startsCold = map[string]string{"PYTHON_E2BCTL_TEST": "1"}

// warmCloud returns a cloud whose zygote is warm.
func warmCloud(t *testing.T) *sandboxtest.Cloud {
	t.Helper()
	return warmed(t, &sharedCloud)
}

// warmed returns a cloud whose zygote is warm. It skips t if the cloud has none.
func warmed(t *testing.T, common *commonCloud) *sandboxtest.Cloud {
	t.Helper()
	python, err := local.FindPython(t.Context())
	must.Do(t, err)
	if python.Level == "plain" {
		t.Skipf("%s has nothing to load", python.Path)
	}
	cloud := common.get(t)
	if cloud.Isolation() != local.Full {
		t.Skip("kernels are forked with full isolation only")
	}
	awaitWarm(t, cloud)
	return cloud
}

// awaitWarm waits until kernels are being forked. A sandbox's first kernel proves nothing:
// it may have been forked ahead, by a zygote that has ended since.
func awaitWarm(t *testing.T, cloud *sandboxtest.Cloud) {
	t.Helper()
	sb := cloud.Create(t)
	sandboxtest.Eval(t, sb, "1 + 1")
	patience.Until(t, "a kernel is forked", func() bool {
		made, err := sb.Contexts.Create(t.Context(), nil)
		must.Do(t, err)
		defer func() {
			if err := sb.Contexts.Remove(t.Context(), made.ID); err != nil {
				t.Error(err)
			}
		}()
		return evaluateIn(t, sb, made.ID, forked) == "True"
	})
}

// kernelLog returns the entries about kernels in the log of a sandbox.
func kernelLog(t *testing.T, sb *sandbox.Sandbox) (said []string) {
	t.Helper()
	for entry, err := range sb.Logs(t.Context(), &sandbox.LogParams{Level: sandbox.LogDebug, Search: "kernel"}) {
		if err != nil {
			t.Error(err)
			break
		}
		said = append(said, fmt.Sprintf("%s %v", entry.Message, entry.Fields))
	}
	return said
}

func evaluateIn(t *testing.T, sb *sandbox.Sandbox, context sandbox.ContextID, code string) string {
	t.Helper()
	execution, err := sb.RunCode(t.Context(), code, &sandbox.RunCodeParams{Context: context})
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return execution.Text()
}

// self collects the facts about itself that a process can find out and that must not depend on
// how it was started. In a forked kernel the threads of linear algebra start with the fork,
// not with the import of numpy, so they are not counted.
const self = `
import ctypes, gc, getpass, json, locale, os, resource, signal, site, stat, sys, tempfile, threading, warnings
def read(name):
    with open("/proc/self/" + name) as f:
        return f.read()
status = dict(line.split(":\t", 1) for line in read("status").splitlines() if ":\t" in line)
def fd(name):
    kind = os.readlink("/proc/self/fd/" + name).partition(":")[0]
    return [kind, os.get_inheritable(int(name))]
def open_files():
    names = os.listdir("/proc/self/fd")
    return {name: fd(name) for name in names if os.path.lexists("/proc/self/fd/" + name)}
print(json.dumps({
    "status": {k: v for k, v in status.items() if k in (
        "Name", "Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "SigCgt", "ShdPnd", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
        "NoNewPrivs", "Seccomp", "Seccomp_filters", "Speculation_Store_Bypass", "Cpus_allowed", "Mems_allowed", "CoreDumping", "THP_enabled")},
    "ids": len(status["NSpid"].split()), "tracer": status["TracerPid"],
    "dumpable": ctypes.CDLL(None).prctl(3), "keepcaps": ctypes.CDLL(None).prctl(7), "securebits": ctypes.CDLL(None).prctl(27),
    "limits": read("limits"), "oom": read("oom_score_adj"), "nice": os.getpriority(0, 0), "scheduler": os.sched_getscheduler(0),
    "owner": [os.stat("/proc/self").st_uid, os.stat("/proc/self/environ").st_uid],
    "leads": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), os.getppid()],
    "files": open_files(), "cwd": os.getcwd(), "root": os.path.realpath("/proc/self/root"),
    "executable": [sys.executable, sys.prefix, sys.base_prefix],
    "environ": {k: v for k, v in os.environ.items() if not k.startswith("PYTHON_") and k not in ("E2B_SANDBOX_ID", "E2B_TRAFFIC_ACCESS_TOKEN")},
    "path": sys.path, "argv": sys.argv, "flags": str(sys.flags), "bytecode": sys.dont_write_bytecode, "user": site.ENABLE_USER_SITE,
    "names": sorted(dir()), "signals": [str(signal.getsignal(s)).partition(" at ")[0] for s in (2, 13, 15, 17)],
    "locale": [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding(), locale.getpreferredencoding()],
    "threads": sorted(t.name for t in threading.enumerate()), "gc": [gc.isenabled(), gc.get_threshold()],
    "home": os.path.expanduser("~"), "temp": tempfile.gettempdir(), "finders": [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path],
    "streams": [repr(type(s)) for s in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__)], "stdin": sys.stdin.fileno(),
    "hooks": [sys.excepthook is sys.__excepthook__, str(type(sys.displayhook))], "recursion": sys.getrecursionlimit(),
    "version": __import__("IPython").get_ipython().execution_count, "ns": sorted(get_ipython().user_ns_hidden),
    "profile": get_ipython().profile_dir.location, "there": os.path.isdir(get_ipython().profile_dir.startup_dir),
    "main": sys.modules["__main__"].__name__, "backend": os.environ["MPLBACKEND"], "orig": [os.path.basename(a) for a in sys.orig_argv],
}))
`

// describeKernel returns the kernel's facts about itself, and checks whether it was forked.
func describeKernel(t *testing.T, sb *sandbox.Sandbox, want string) (found map[string]any) {
	t.Helper()
	execution, err := sb.RunCode(t.Context(), self, nil)
	if err == nil {
		err = json.Unmarshal([]byte(execution.Stdout), &found)
	}
	must.Do(t, err)
	if got := sandboxtest.Eval(t, sb, forked); got != want {
		t.Errorf("forked is %s, want %s", got, want)
	}
	return found
}

// TestForkedKernel compares a forked kernel with one that was started.
func TestForkedKernel(t *testing.T) {
	t.Parallel()
	signal.Ignore(unix.SIGHUP, unix.SIGQUIT) // as under nohup and for a shell's background jobs
	t.Cleanup(func() { signal.Reset(unix.SIGHUP, unix.SIGQUIT) })
	cloud := warmCloud(t)
	warm, cold := cloud.Create(t), cloud.Create(t, sandbox.WithEnvs(startsCold))
	if diff := cmp.Diff(describeKernel(t, cold, "False"), describeKernel(t, warm, "True")); diff != "" {
		t.Errorf("a forked kernel differs (-started +forked):\n%s", diff)
	}

	// It displays values and figures like the other one.
	const show = `
import matplotlib.pyplot as plt, numpy as np, pandas as pd
plt.plot([1, 2, 3]); plt.show()
from PIL import Image
Image.new("L", (1, 1)).save("/tmp/saved.png")
display(np.arange(3)); pd.DataFrame({"a": [1, 2]})`
	var formats [2][][]string
	for i, sb := range []*sandbox.Sandbox{cold, warm} {
		execution, err := sb.RunCode(t.Context(), show, nil)
		must.Do(t, err)
		for _, result := range execution.Results {
			formats[i] = append(formats[i], slices.Sorted(maps.Keys(result.Data)))
		}
	}
	if diff := cmp.Diff(formats[0], formats[1]); diff != "" || len(formats[0]) != 4 {
		t.Errorf("a forked kernel shows (-started +forked):\n%s", diff)
	}

	samePlaces(t, warm)
}

// samePlaces checks that the kernel is in the same namespaces and cgroup as the sandbox's
// commands.
func samePlaces(t *testing.T, warm *sandbox.Sandbox) {
	t.Helper()
	const places = "cat /proc/self/cgroup; for n in cgroup ipc mnt net pid pid_for_children user uts; do readlink /proc/self/ns/$n; done; hostname; id -u"
	result, err := warm.Commands.Run(t.Context(), places, &sandbox.CommandParams{User: "root"})
	must.Do(t, err)
	if got := sandboxtest.Eval(t, warm, `
lines = [open("/proc/self/cgroup").read()]
lines += [os.readlink("/proc/self/ns/" + n) + "\n" for n in ("cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "user", "uts")]
"".join(lines) + os.uname().nodename + "\n" + str(os.getuid()) + "\n"`); strings.ReplaceAll(strings.Trim(got, "'"), `\n`, "\n") != result.Stdout {
		t.Errorf("a forked kernel is in\n%s\na command is in\n%s", got, result.Stdout)
	}
}

// aheadCloud returns a cloud that forks the first kernels of its sandboxes ahead. Only tests of such kernels
// use it: others would take them.
func aheadCloud(t *testing.T) *sandboxtest.Cloud {
	t.Helper()
	return warmed(t, &forkingCloud)
}

// createAhead returns a sandbox with a kernel that waits, and the kernel's process id. The process that
// forks the kernel has the same arguments, but is not a child of the sandbox's first process.
func createAhead(t *testing.T, cloud *sandboxtest.Cloud, options ...sandbox.CreateOption) (sb *sandbox.Sandbox, pid string) {
	t.Helper()
	patience.Until(t, "a sandbox has a kernel before code is run", func() bool {
		sb = cloud.Create(t, options...)
		pids := strings.Fields(sandboxtest.Run(t, sb, "pgrep -P 1 -f -- '[-]-zygote' || true"))
		if len(pids) == 1 {
			pid = pids[0]
			return true
		}
		must.Do(t, sb.Kill(t.Context()))
		return false
	})
	return sb, pid
}

// ranBy checks which process runs code.
func ranBy(t *testing.T, sb *sandbox.Sandbox, pid string) {
	t.Helper()
	if got := sandboxtest.Eval(t, sb, "__import__('os').getpid()"); got != pid {
		t.Errorf("code is run by process %s, want it run by %s, which waited", got, pid)
	}
}

// TestForkedAhead compares a kernel that was forked before its sandbox had a user with one
// that was started in a sandbox of a cloud that makes none ahead.
func TestForkedAhead(t *testing.T) {
	t.Parallel()
	warm, pid := createAhead(t, aheadCloud(t), sandbox.WithEnvs(map[string]string{"MINE": "1", "TZ": "Asia/Tokyo"}))
	none := sandboxtest.New(t, local.WithWarm(0))
	without := none.Create(t, sandbox.WithEnvs(map[string]string{"MINE": "1", "TZ": "Asia/Tokyo", "PYTHON_E2BCTL_TEST": "1"}))
	if got := sandboxtest.Run(t, without, "ps ax"); strings.Contains(got, "--zygote") {
		t.Errorf("got a kernel before code is run:\n%s", got)
	}
	if diff := cmp.Diff(describeKernel(t, without, "False"), describeKernel(t, warm, "True")); diff != "" {
		t.Errorf("a kernel that was forked ahead differs (-started +forked):\n%s", diff)
	}
	ranBy(t, warm, pid)
	const live = `import os, socket, time
[os.environ["MINE"], time.tzname[0], socket.gethostname() == os.environ["E2B_SANDBOX_ID"], os.getcwd()]`
	if got := sandboxtest.Eval(t, warm, live); got != "['1', 'JST', True, '/home/user']" {
		t.Errorf("got %s", got)
	}
	samePlaces(t, warm)
}

// TestForkedAheadStartsCold checks that variables that act when Python starts get a process
// that was started with them, even if another one waits.
func TestForkedAheadStartsCold(t *testing.T) {
	t.Parallel()
	sb, pid := createAhead(t, aheadCloud(t), sandbox.WithEnvs(map[string]string{"PYTHONHASHSEED": "7"}))
	want := strings.TrimSpace(sandboxtest.Run(t, sb, `PYTHONHASHSEED=7 python3 -c 'print(hash("a"))'`))
	if got := sandboxtest.Eval(t, sb, `hash("a")`); got != want {
		t.Errorf("got hash %s, want %s", got, want)
	}
	if got := sandboxtest.Eval(t, sb, "__import__('os').getpid()"); got == pid {
		t.Errorf("code is run by process %s, which was forked before the variables were known", got)
	}
}

// TestForkedAheadKilled checks that a kernel that is killed while it waits is replaced.
func TestForkedAheadKilled(t *testing.T) {
	t.Parallel()
	sb, pid := createAhead(t, aheadCloud(t))
	_, err := sb.Commands.Run(t.Context(), "kill -9 "+pid, &sandbox.CommandParams{User: "root"})
	must.Do(t, err)
	if got := sandboxtest.Eval(t, sb, "1 + 1"); got != "2" {
		t.Errorf("got %s, want 2", got)
	}
}

// TestForkedAheadPaused checks that a sandbox is paused and resumed with the waiting kernel,
// and that it gets another one after a pause that kept only its files.
func TestForkedAheadPaused(t *testing.T) {
	t.Parallel()
	cloud := aheadCloud(t)
	for _, mode := range []sandbox.PauseMode{sandbox.PauseFull, sandbox.PauseFilesystem} {
		sb, pid := createAhead(t, cloud, sandbox.WithEnvs(map[string]string{"MINE": "1"}))
		must.Do(t, sb.Pause(t.Context(), &sandbox.PauseParams{Mode: mode}))
		must.Do(t, sb.Resume(t.Context(), nil))
		if mode == sandbox.PauseFull {
			ranBy(t, sb, pid)
		}
		if got := sandboxtest.Eval(t, sb, "__import__('os').environ['MINE']"); got != "1" {
			t.Errorf("%v: got %s, want 1", mode, got)
		}
	}
}

// TestForkedAheadTrusts checks that a waiting kernel sees the authority that its sandbox got
// later.
func TestForkedAheadTrusts(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("sandboxes of this user that trust an authority are made when they are asked for")
	}
	sb, pid := createAhead(t, aheadCloud(t), sandbox.WithNetwork(sandbox.Network{Headers: map[string]map[string]string{"example.com": {"X-A": "b"}}}))
	ranBy(t, sb, pid)
	const trusted = `import os, ssl
[os.environ["SSL_CERT_FILE"], len(ssl.create_default_context(cafile="/run/e2bctl/authority.pem").get_ca_certs())]`
	if got := sandboxtest.Eval(t, sb, trusted); got != "['/run/e2bctl/certificates.pem', 1]" {
		t.Errorf("got %s", got)
	}
}

// TestForkedAheadSnapshot checks that a sandbox of a snapshot runs code in its files.
func TestForkedAheadSnapshot(t *testing.T) {
	t.Parallel()
	cloud := aheadCloud(t)
	sb, pid := createAhead(t, cloud)
	must.Do(t, sb.Files.Write(t.Context(), "/home/user/kept.py", []byte("x = 41\n"), nil))
	snapshot, err := sb.Snapshot(t.Context(), nil)
	must.Do(t, err)
	ranBy(t, sb, pid)
	child := cloud.Create(t, sandbox.WithTemplate(snapshot.ID))
	for _, of := range []*sandbox.Sandbox{sb, child} {
		if got := sandboxtest.Eval(t, of, "__import__('kept').x + 1"); got != "42" {
			t.Errorf("got %s, want 42", got)
		}
	}
}

// TestForkedKernelsDiffer checks that two kernels differ in the values that must not be the
// same in both.
func TestForkedKernelsDiffer(t *testing.T) {
	t.Parallel()
	cloud := aheadCloud(t)
	const code = `
import numpy, random, uuid, tempfile, secrets, multiprocessing, pandas
[numpy.random.rand(), numpy.random.default_rng().random(), random.random(), uuid.uuid1().hex, uuid.uuid4().hex, next(tempfile._get_candidate_names()),
 secrets.token_hex(), multiprocessing.current_process().authkey.hex(), float(pandas.Series(range(1000)).sample(1).iloc[0] + numpy.random.rand())]`
	var values [2][]string
	for i := range values {
		sb, _ := createAhead(t, cloud)
		values[i] = strings.Split(strings.ReplaceAll(sandboxtest.Eval(t, sb, code), "\n", ""), ", ")
		if got := sandboxtest.Eval(t, sb, forked); got != "True" {
			t.Error("the kernel was not forked")
		}
	}
	for i := range values[0] {
		if values[0][i] == values[1][i] {
			t.Errorf("both have %s", values[0][i])
		}
	}
}

// TestForkedKernelIsReplaced changes the files that the zygote has loaded.
func TestForkedKernelIsReplaced(t *testing.T) {
	t.Parallel()
	cloud := warmCloud(t)
	wheel := wheelFile(t, "numpy", "9.9.9", "__version__, float64 = '9.9.9', float\n")
	const version = `__import__("numpy").__version__`

	t.Run("not started", func(t *testing.T) {
		sb := cloud.Create(t)
		if done, err := sb.Packages.Install(t.Context(), []string{wheel}, nil); err != nil || done.RestartNeeded != nil {
			t.Fatalf("got %+v, %v, want no restart needed and no error", done, err)
		}
		if got := sandboxtest.Eval(t, sb, version); got != "9.9.9" {
			t.Errorf("numpy %s, want %s", got, "9.9.9")
		}
		if got := sandboxtest.Eval(t, sb, forked); got != "False" {
			t.Error("the kernel has another numpy loaded")
		}
	})
	t.Run("has run nothing", func(t *testing.T) {
		sb := cloud.Create(t)
		made, err := sb.Contexts.Create(t.Context(), nil)
		must.Do(t, err)
		patience.Until(t, "the kernel has started", func() bool {
			return sandboxtest.Run(t, sb, "ps ax") != "" && strings.Contains(sandboxtest.Run(t, sb, "ps ax"), "--zygote")
		})
		if _, err := sb.Packages.Install(t.Context(), []string{wheel}, nil); err != nil {
			t.Fatal(err)
		}
		if got := evaluateIn(t, sb, made.ID, version); got != "9.9.9" {
			t.Errorf("numpy %s, want %s", got, "9.9.9")
		}
	})
	t.Run("has run something", func(t *testing.T) {
		sb := cloud.Create(t)
		sandboxtest.Eval(t, sb, "x = 1; import numpy")
		done, err := sb.Packages.Install(t.Context(), []string{wheel}, nil)
		must.Do(t, err)
		if !slices.Equal(done.RestartNeeded, []string{"numpy"}) {
			t.Errorf("restart is needed for %q, want %q", done.RestartNeeded, []string{"numpy"})
		}
		if got := sandboxtest.Eval(t, sb, "x"); got != "1" {
			t.Errorf("x is %s, want %s", got, "1")
		}
		must.Do(t, sb.Contexts.Restart(t.Context(), "default"))
		if got := sandboxtest.Eval(t, sb, version); got != "9.9.9" {
			t.Errorf("numpy %s after the restart, want %q", got, "9.9.9")
		}
	})
	t.Run("a file of the user", func(t *testing.T) {
		sb := cloud.Create(t)
		must.Do(t, sb.Files.Write(t.Context(), "/home/user/numpy.py", []byte("__version__, float64 = 'mine', float\n"), nil))
		if got := sandboxtest.Eval(t, sb, version); got != "mine" {
			t.Errorf("numpy %s, want %s", got, "mine")
		}
	})
	t.Run("a file of another kind", func(t *testing.T) {
		sb := cloud.Create(t)
		must.Do(t, sb.Files.Write(t.Context(), "/home/user/numpy.csv", []byte("1,2\n"), nil))
		if got := sandboxtest.Eval(t, sb, forked); got != "True" {
			t.Error("a file that cannot be imported kept the kernel from being forked")
		}
	})
	t.Run("another package", func(t *testing.T) {
		sb := cloud.Create(t)
		const write = `import site; open(site.getsitepackages()[0] + "/other_thing.py", "w").write("y = 2")`
		_, err := sb.Commands.Run(t.Context(), "python3 -c '"+write+"'", &sandbox.CommandParams{User: "root"})
		must.Do(t, err)
		if got := sandboxtest.Eval(t, sb, `__import__("other_thing").y, `+forked); got != "(2, True)" {
			t.Errorf("the new package and whether the kernel was forked: %s, want %s", got, "(2, True)")
		}
	})
}

// TestZygoteKilled checks that kernels start without the zygote, and that it is started again.
func TestZygoteKilled(t *testing.T) { // not in parallel: it kills the zygotes of all clouds
	cloud := warmCloud(t)
	sb := cloud.Create(t)
	if got := sandboxtest.Eval(t, sb, "x = 1; "+forked); got != "True" {
		t.Fatal("the kernel was not forked")
	}
	pids := zygotes()
	if len(pids) == 0 {
		t.Fatal("no zygote was found")
	}
	for _, pid := range pids {
		// The zygote of a cloud that is being closed may already have ended.
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Error(err)
		}
	}
	if got := sandboxtest.Eval(t, cloud.Create(t), "1 + 1"); got != "2" {
		t.Errorf("1 + 1 is %s while there is no zygote, want %q", got, "2")
	}
	if got := sandboxtest.Eval(t, sb, "x"); got != "1" {
		t.Errorf("x is %s: the kernel did not outlive the zygote, want %q", got, "1")
	}
	awaitWarm(t, cloud)
}

// TestForkedKernelDies checks that the next kernel is forked too.
func TestForkedKernelDies(t *testing.T) {
	t.Parallel()
	sb := warmCloud(t).Create(t)
	for _, end := range []string{"import os; os._exit(3)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"} {
		if got := sandboxtest.Eval(t, sb, "x = 1; "+forked); got != "True" {
			t.Fatal("the kernel was not forked")
		}
		if _, err := sb.RunCode(t.Context(), end, nil); err == nil {
			t.Errorf("%s: no error", end)
		}
		if got := sandboxtest.Eval(t, sb, "'x' in globals()"); got != "False" {
			t.Error("the state is still there")
		}
	}
	must.Do(t, sb.Contexts.Restart(t.Context(), "default"))
	if got := sandboxtest.Eval(t, sb, forked); got != "True" {
		t.Error("the kernel was not forked after a restart")
	}
	// The first process of the sandbox has reaped them.
	patience.Until(t, "there are no zombies", func() bool { return sandboxtest.Run(t, sb, "ps axo stat= | grep -c ^Z || true") == "0" })
}

// TestKernelCannotReachZygote tries from inside a forked kernel, as root.
func TestKernelCannotReachZygote(t *testing.T) {
	t.Parallel()
	cloud := warmCloud(t)
	sb := cloud.Create(t)
	if got := sandboxtest.Eval(t, sb, forked); got != "True" {
		t.Fatal("the kernel was not forked")
	}
	const attack = `
import asyncio, ctypes, os
found = []
def attempt(name, call):
    try:
        if call() is not False:
            found.append(name)
    except OSError:
        pass
libc = ctypes.CDLL(None, use_errno=True)
me = os.getpid()
loop = asyncio.get_running_loop()
own = {"3", str(loop._ssock.fileno()), str(loop._csock.fileno())}
for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
    if pid in (1, me):
        continue
    try:
        command = open("/proc/%d/cmdline" % pid).read()
    except OSError:
        continue
    if "--zygote" in command:
        found.append("process %d" % pid)
    attempt("ptrace %d" % pid, lambda: "--zygote" in command and libc.ptrace(16, pid, 0, 0) == 0)
attempt("write to what it runs", lambda: open("/proc/self/exe", "ab"))
attempt("write to a library", lambda: [open(l.split()[-1], "ab").close() for l in open("/proc/self/maps") if l.split()[-1].endswith(".so") and 0] or False)
attempt("a descriptor of a socket that is not its own", lambda: [n for n in os.listdir("/proc/self/fd") if os.path.lexists("/proc/self/fd/" + n) and os.readlink("/proc/self/fd/" + n).startswith("socket:") and n not in own] or False)
attempt("a directory", lambda: [n for n in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd/" + n) and os.path.lexists("/proc/self/fd/" + n)] or False)
attempt("join the parent's namespaces", lambda: libc.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0) == 0)
attempt("a new namespace", lambda: libc.unshare(0x10000000) == 0)
attempt("a parent", lambda: os.getppid() != 1)
found`
	if got := sandboxtest.Eval(t, sb, attack); got != "[]" {
		t.Errorf("it could reach %s, want %s", got, "[]")
	}
	if len(zygotes()) == 0 {
		t.Error("the zygote is gone")
	}
}

// zygotes returns the processes of the zygotes of this process's clouds.
func zygotes() (pids []int) {
	return slices.DeleteFunc(below(os.Getpid()), func(pid int) bool {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		return !strings.Contains(string(command), "--zygote") || namespacesDeep(string(status)) != 2 // kernels are deeper
	})
}

// below returns all processes below pid.
func below(pid int) (found []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		for _, field := range strings.Fields(string(children)) {
			if child, err := strconv.Atoi(field); err == nil {
				found = append(append(found, child), below(child)...)
			}
		}
	}
	return found
}

func namespacesDeep(status string) int {
	for line := range strings.Lines(status) {
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(pids))
		}
	}
	return 0
}

// TestManyForkedKernels starts kernels with pandas in many sandboxes at once. All work.
// Kernels that are requested when the machine is too busy to fork them are started without the
// zygote: at least one is forked.
func TestManyForkedKernels(t *testing.T) {
	cloud := warmCloud(t)
	count := 20
	if n, err := strconv.Atoi(os.Getenv("E2BCTL_TEST_KERNELS")); err == nil {
		count = n
	}
	began := time.Now()
	errs := make(chan error, count)
	slots := make(chan struct{}, 8)
	boxes := make([]*sandbox.Sandbox, count)
	var forks atomic.Int64
	for i := range count {
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			sb, err := sandbox.Create(t.Context(), cloud.Option())
			if err != nil {
				errs <- err
				return
			}
			boxes[i] = sb
			execution, err := sb.RunCode(t.Context(), "import pandas; len(pandas.DataFrame({'a': [1, 2]})), "+forked, nil)
			switch {
			case err != nil:
			case execution.Text() == "(2, True)":
				forks.Add(1)
			case execution.Text() != "(2, False)":
				err = fmt.Errorf("sandbox %d: pandas' frame and whether the kernel was forked: %s, want 2 rows; its log: %q", i, execution.Text(), kernelLog(t, sb))
			}
			errs <- err
		}()
	}
	for range count {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d sandboxes with pandas, %d of them forked: %v", count, forks.Load(), time.Since(began))
	if forks.Load() == 0 {
		t.Errorf("none of %d kernels was forked, want at least one", count)
	}
	t.Logf("memory of all: %d MB", proportionalMemory(os.Getpid())>>20)
	for _, sb := range boxes {
		if sb != nil {
			if err := sb.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// proportionalMemory returns the memory of all processes below pid.
func proportionalMemory(pid int) (sum int) {
	for _, child := range below(pid) {
		rollup, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", child))
		for line := range strings.Lines(string(rollup)) {
			if value, ok := strings.CutPrefix(line, "Pss:"); ok {
				n, _ := strconv.Atoi(strings.Fields(value)[0])
				sum += n << 10
			}
		}
	}
	return sum
}
