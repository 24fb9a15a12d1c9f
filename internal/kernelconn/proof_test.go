package kernelconn

import (
	"errors"
	"testing"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
)

// A fresh kernel drops what it says on iopub until it has heard of the websocket
// that was opened while it started. No code is sent into that gap.
func TestFreshKernelThatIsNotHeard(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	deaf := 0 // requests of which the answer on iopub does not come
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		switch {
		case jupytertest.Code(m) == "die":
			deaf = 2
			k.Begin(m)
			k.Status(nil, "restarting")
			return
		case deaf > 0:
			deaf--
		default:
			k.Begin(m)
			k.Stream(m, "stdout", "ran "+jupytertest.Code(m))
			defer k.Status(m, "idle")
		}
		k.Reply(m, "ok")
	})
	ks := s.kernels()
	if _, err := run(t.Context(), ks, "die", Handler{}); !errors.Is(err, ErrDied) {
		t.Fatalf("code that ended its kernel: %v", err)
	}
	printed, err := run(t.Context(), ks, "x", Handler{})
	if err != nil {
		t.Fatalf("the next: %v", err)
	}
	if want := "ran x"; printed != want {
		t.Errorf("the next printed %q, want %q", printed, want)
	}
}
