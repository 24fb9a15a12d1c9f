//go:build linux

package e2e

import (
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/state"
)

// A run works the same on ipykernel, which other services use, even if threads
// call its tools at odd times.
func TestRunOnIPykernel(t *testing.T) {
	t.Parallel()
	kernels := wheelsOf(t, kernelWheels)
	sb := shared(t).Create(t)
	if _, err := sb.Packages.Install(t.Context(), kernels, nil); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eval(t, sb, "import subprocess, sys; subprocess.run([sys.executable, '-m', 'ipykernel', 'install', '--sys-prefix', '--name', 'stock'], check=True).returncode")
	c, err := sb.Contexts.Create(t.Context(), &sandbox.CodeContextParams{Language: "stock"})
	must.Do(t, err)
	st := state.New()
	must.Do(t, st.Set("x", 20))
	r := begin(t, sb, &agent.Params{Context: c.ID, State: st, Tools: []agent.Tool{add}, Guard: &agent.Guard{Allow: []string{"os.*", "threading"}, Functions: []string{"open"}}})
	if step := observe(t, r, "import ipykernel\nadd(x, 1)"); len(step.Violations) != 1 {
		t.Errorf("got %+v, want one violation", step)
	}
	if step := observe(t, r, "import threading\nn = []\nts = [threading.Thread(target=lambda i=i: n.append(add(i, 1))) for i in range(8)]\n[t.start() for t in ts]\n[t.join() for t in ts]\nsum(n), await add.aio(1, 2)"); step.Text() != "(36, 3)" {
		t.Errorf("got %+v, want text %q", step, "(36, 3)")
	}
	observe(t, r, `import os, time
said = []
def late():
    while not os.path.exists('/tmp/go'):
        time.sleep(0.01)
    try:
        said.append(add(1, 1))
    except Exception as e:
        said.append(str(e))
    open('/tmp/said', 'w').close()
thread = threading.Thread(target=late)
thread.start()`)
	sandboxtest.Run(t, sb, "touch /tmp/go")
	patience.Until(t, "the thread is told", func() bool {
		result, err := sb.Commands.Run(t.Context(), "ls /tmp/said", nil)
		return err == nil && result.ExitCode == 0
	})
	if step := observe(t, r, "thread.join()\nadd(40, 2), said"); !strings.HasPrefix(step.Text(), "(42, ['add: ") {
		t.Errorf("got %+v, want %q at the start of step.Text", step, "(42, ['add: ")
	}
	if step := observe(t, r, "x += 1\nfinal_answer(add(x, x))"); !step.Final || decoded[int](t, step.Value) != 42 {
		t.Errorf("got %+v, want the final answer 42", step)
	}
	must.Do(t, r.Pull(t.Context(), st))
	if v, _ := st.Value("x"); decoded[int](t, v) != 21 {
		t.Errorf("x is %s, want 21", v.Bytes())
	}
}
