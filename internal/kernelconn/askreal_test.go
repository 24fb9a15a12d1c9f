//go:build linux

package kernelconn

import (
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/interpreter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// realKernels returns the kernels of the interpreter of sandboxes.
func realKernels(t *testing.T) *Kernels {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil || exec.CommandContext(t.Context(), python, "-c", "import IPython").Run() != nil {
		t.Skip("there is no python3 with IPython: make deps prepares one")
	}
	home := t.TempDir()
	real, err := interpreter.New(interpreter.Options{
		Python: []string{python}, Dir: home, Scratch: t.TempDir(), Token: func() string { return "" }, Logger: slog.New(slog.DiscardHandler),
		Environ: func() ([]string, error) { return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}, nil },
	})
	must.Do(t, err)
	t.Cleanup(func() {
		if err := real.Close(); err != nil {
			t.Error(err)
		}
	})
	s := newServer(t)
	s.contexts = real.Interpreter().ServeHTTP
	s.rest, s.socket = real.Jupyter().ServeHTTP, real.Jupyter().ServeHTTP
	return s.kernels()
}

// TestAskComplete has a real kernel complete a name that earlier code made.
func TestAskComplete(t *testing.T) {
	t.Parallel()
	ks := realKernels(t)
	_, err := run(t.Context(), ks, "remembered = 1", Handler{})
	must.Do(t, err)
	var reply struct {
		Matches []string
		Start   int `json:"cursor_start"`
		End     int `json:"cursor_end"`
	}
	question := Question{Kind: "complete", Content: map[string]any{"code": "x = rememb", "cursor_pos": 10}}
	must.Do(t, ks.Ask(t.Context(), question, &reply))
	if !slices.Contains(reply.Matches, "remembered") || reply.Start != 4 || reply.End != 10 {
		t.Errorf("got %+v, want remembered in place of 4 to 10", reply)
	}
}

// TestAskInspect has a real kernel describe a function.
func TestAskInspect(t *testing.T) {
	t.Parallel()
	var reply struct {
		Found bool
		Data  map[string]string
	}
	question := Question{Kind: "inspect", Content: map[string]any{"code": "len", "cursor_pos": 3}}
	must.Do(t, realKernels(t).Ask(t.Context(), question, &reply))
	if !reply.Found || !strings.Contains(reply.Data["text/plain"], "number of items") {
		t.Errorf("got %+v, want what len says about itself", reply)
	}
}

// TestAskIsComplete asks a real kernel whether more lines belong to code.
func TestAskIsComplete(t *testing.T) {
	t.Parallel()
	ks := realKernels(t)
	for code, want := range map[string]string{"x = 1": "complete", "for i in x:": "incomplete", "x = = 1": "invalid"} {
		var reply struct{ Status, Indent string }
		must.Do(t, ks.Ask(t.Context(), Question{Kind: "is_complete", Content: map[string]string{"code": code}}, &reply))
		if reply.Status != want || (reply.Indent != "") != (want == "incomplete") {
			t.Errorf("%s: got %+v, want %s", code, reply, want)
		}
	}
}
