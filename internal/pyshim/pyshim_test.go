package pyshim_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pyshim"
)

// run runs a program in a Python without any setup of the user, and returns its output.
func run(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on this machine: the modules are not run")
	}
	cmd := exec.CommandContext(t.Context(), path, "-I", "-")
	cmd.Stdin = strings.NewReader(program)
	cmd.Env = []string{"TMPDIR=" + t.TempDir(), "PYTHONIOENCODING=utf-8"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestInstallLeavesNoNames(t *testing.T) {
	t.Parallel()
	got := run(t, "before = set(globals())\n"+pyshim.Install()+"\n"+pyshim.Install()+"\nprint(sorted(set(globals()) - before - {'before'}), "+pyshim.Call("begin")+")")
	if want := "[] <value for the host>"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestInstallOnce checks that a second installation keeps the state of the first one.
func TestInstallOnce(t *testing.T) {
	t.Parallel()
	token := `__import__("sys").modules["_e2bctl_state"]._token`
	got := run(t, pyshim.Install()+"\na = "+token+"\n"+pyshim.Install()+"\nprint(a == "+token+")")
	if got != "True" {
		t.Errorf("got %s, want %s", got, "True")
	}
}

func TestNotInstalled(t *testing.T) {
	t.Parallel()
	got := run(t, "try:\n  "+pyshim.Call("begin")+"\nexcept Exception as e:\n  print(type(e).__name__, e)")
	name, value, _ := strings.Cut(got, " ")
	if !pyshim.NotInstalled(name, value) {
		t.Errorf("got %q, want the message that the module is not installed", got)
	}
}

func TestGuardNotInstalled(t *testing.T) {
	t.Parallel()
	got := run(t, pyshim.Install()+"\ntry:\n  "+pyshim.CallGuard("disarm")+"\nexcept Exception as e:\n  print(type(e).__name__, e)\n"+
		pyshim.InstallGuard()+"\nprint("+pyshim.CallGuard("disarm")+")\ntry:\n  "+pyshim.CallGuard("arm", "{}")+"\nexcept Exception as e:\n  print(type(e).__name__)")
	lines := strings.Split(got, "\n")
	name, value, _ := strings.Cut(lines[0], " ")
	if !pyshim.GuardNotInstalled(name, value) || pyshim.NotInstalled(name, value) {
		t.Errorf("got %q, want the error that the guard alone is not installed", lines[0])
	}
	if diff := cmp.Diff([]string{"<value for the host>", "KeyError"}, lines[1:]); diff != "" {
		t.Errorf("after its installation (-want +got):\n%s", diff)
	}
}

// TestGuardUnsupported checks that a kernel without IPython and without the driver's hook
// cannot be guarded.
func TestGuardUnsupported(t *testing.T) {
	t.Parallel()
	config := `{"allow": [], "optional": [], "distributions": []}`
	got := run(t, pyshim.Install()+"\n"+pyshim.InstallGuard()+"\ntry:\n  "+pyshim.CallGuard("arm", config)+"\nexcept NotImplementedError as e:\n  print(e)")
	if !strings.Contains(got, "it needs IPython") {
		t.Errorf("got %s, want %q in it", got, "it needs IPython")
	}
}

// TestGuardInTheSmallDriver checks that the local cloud's small driver can be guarded.
func TestGuardInTheSmallDriver(t *testing.T) {
	t.Parallel()
	driver, err := filepath.Abs("../cloud/kernel/python")
	must.Do(t, err)
	config := `{"allow": ["math"], "optional": [], "distributions": [], "deny": [], "named": [], "functions": ["open"], ` +
		`"processes": false, "network": false, "turns": 9, "operations": 0}`
	got := run(t, pyshim.Install()+"\n"+pyshim.InstallGuard()+`
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, `+strconv.Quote(driver)+`)
from _e2bctl_kernel.plain import Engine
class Kernel:
    def emit(self, *a): pass
    emit_last = emit
    def display(self, *a, **k): pass
    def restore_modules(self): pass
out, engine = sys.stdout, Engine(Kernel())
def ask(code, expression="1"):
    reply = engine.execute({"code": code, "user_expressions": {"x": expression}})
    print(reply.get("ename", reply.get("user_expressions", {}).get("x", {}).get("status")), file=out)
ask("", `+strconv.Quote(pyshim.CallGuard("arm", config))+`)
ask("import os")
ask("while True: pass")
ask("open('f')")
ask("().__class__")
ask("import math; math.pi", `+strconv.Quote(pyshim.CallGuard("report"))+`)
ask("", `+strconv.Quote(pyshim.CallGuard("disarm"))+`)
ask("import os; ().__class__")
`)
	if want := "ok GuardViolation GuardViolation GuardViolation GuardViolation ok ok ok"; strings.Join(strings.Fields(got), " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestCallQuotes checks that an argument is data, whatever it contains.
func TestCallQuotes(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"plain", `"quoted' \ `, "\n\r\t\x00\x7f", "é\u2028😀", `") or print("no`} {
		call := pyshim.Call("f", arg, 3)
		program := "import sys, types\nm = sys.modules['_e2bctl_state'] = types.ModuleType('m')\nm.f = lambda s, n: ascii(s) + str(n)\nprint(" + call + ")\nprint(m.f(" + asList(arg) + ", 3))"
		one, other, _ := strings.Cut(run(t, program), "\n")
		if one != other {
			t.Errorf("%q: %s, want %s", arg, one, other)
		}
	}
}

// asList writes a string as a Python expression without quotes.
func asList(s string) string {
	var b strings.Builder
	b.WriteString("bytes([")
	for _, c := range []byte(s) {
		b.WriteString(strconv.Itoa(int(c)) + ",")
	}
	b.WriteString("]).decode()")
	return b.String()
}

// TestCallsOfAStepThatEnded checks that all calls of an exchange that the host ends get
// an error: a call that was requested again might be made twice.
func TestCallsOfAStepThatEnded(t *testing.T) {
	t.Parallel()
	got := run(t, pyshim.Install()+`
import sys, threading, time
tools = sys.modules["_e2bctl_tools"]
questions, told = [], []

def ask(prompt):
    questions.append(prompt)
    if len(questions) > 1:
        raise EOFError
    while len(bridge.calls) < 2:
        time.sleep(0.001)
    return ".[]"

bridge = tools._Bridge(ask)

def call(name):
    try:
        bridge.call(name, {})
    except tools.ToolError as e:
        told.append("%s %s" % (e.type, e))

threads = [threading.Thread(target=call, args=(name,)) for name in ("a", "b")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(told), len(questions))
`)
	if want := "['Unreachable a: the host has ended the step', 'Unreachable b: the host has ended the step'] 2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
