package kernelconn

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
)

// The environment of the sandbox is set once, and that of a call before and undone
// after it.
func TestEnvs(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	codes := make(chan string, 10)
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		codes <- jupytertest.Code(m)
		k.Begin(m)
		k.Reply(m, "ok")
		k.Status(m, "idle")
	})
	ks := s.kernelsOf(Options{Envs: map[string]string{"ALWAYS": "here"}})
	envs := map[string]string{"K": "'\"; import os"}
	for range 2 {
		if _, err := ks.Execute(t.Context(), Call{Request: jupyter.ExecuteRequest{Code: "user"}, Envs: envs}); err != nil {
			t.Fatal(err)
		}
	}
	set := replaceEnvs(envs)
	want := []string{completeEnvs(map[string]string{"ALWAYS": "here"}), set, "user", restoreEnvs, set, "user", restoreEnvs}
	var got []string
	for range want {
		got = append(got, <-codes)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
