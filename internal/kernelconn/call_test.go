package kernelconn

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestExecuteIfFree(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		k.Stream(m, "stdout", "x")
		k.Reply(m, "ok")
		k.Status(m, "idle")
	})
	ks := s.kernels()
	if k := ks.Opened("python"); k != nil {
		t.Errorf("%s is open before any call", k.ID())
	}
	k, err := ks.Open(t.Context(), "", "")
	must.Do(t, err)
	if opened := ks.Opened("python"); opened != k || k.ID() != testContext || k.Language() != "python" {
		t.Errorf("opened %s, in %s; then %v is open", k.ID(), k.Language(), opened)
	}
	if _, err := run(t.Context(), ks, "y", printing(func() {
		if _, err := k.ExecuteIfFree(t.Context(), jupyter.ExecuteRequest{Code: "x"}); err == nil {
			t.Error("it ran beside other code")
		}
	})); err != nil {
		t.Fatal(err)
	}
	if reply, err := k.ExecuteIfFree(t.Context(), jupyter.ExecuteRequest{Code: "x"}); err != nil || reply.Status != "ok" {
		t.Errorf("%+v, %v", reply, err)
	}
}
