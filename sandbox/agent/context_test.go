package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"testing"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/pyshim"
	"github.com/e2bctl/e2bctl/state"
)

// A context is free again when a run could not begin in it, and only that one was taken.
func TestContextIsFreeAfterFailedBegin(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var rs runs
	for range 2 {
		if _, err := rs.begin(t.Context(), failingHost{broken}, "kernel", Params{}); !errors.Is(err, broken) || errors.Is(err, ErrContextBusy) {
			t.Errorf("got error %v, want %v each time", err, broken)
		}
	}
	rs.contexts["kernel"].busy = true
	if _, err := rs.begin(t.Context(), failingHost{broken}, "kernel", Params{}); !errors.Is(err, ErrContextBusy) {
		t.Errorf("got error %v, want %v", err, ErrContextBusy)
	}
	if _, err := rs.begin(t.Context(), failingHost{broken}, "other", Params{}); !errors.Is(err, broken) {
		t.Errorf("in another context: got error %v, want %v", err, broken)
	}
}

// namingHost is a kernel that answers with a file of its choice.
type namingHost struct {
	failingHost
	file   string
	opened []string
}

func (h *namingHost) execute(context.Context, string, jupyter.ExecuteRequest, kernelconn.Handler) (jupyter.ExecuteReply, error) {
	doc, err := state.Marshal(answer{Token: "t", Found: true, File: h.file, Size: 1})
	if err != nil {
		return jupyter.ExecuteReply{}, err
	}
	text, err := json.Marshal(string(doc))
	return jupyter.ExecuteReply{Status: "ok", UserExpressions: map[string]jupyter.ExpressionReply{
		valueKey: {Status: "ok", Data: map[string]json.RawMessage{pyshim.MIME: text}},
	}}, err
}

func (h *namingHost) open(_ context.Context, path string) (io.ReadCloser, error) {
	h.opened = append(h.opened, path)
	return nil, fs.ErrNotExist
}

// Of the files that a kernel names only those in the directory of its own are read, whatever code
// made of the answer.
func TestKernelNamesOnlyItsFiles(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"frame": "/tmp/e2bctl-1/frame", "/tmp/e2bctl-1/frame": "/tmp/e2bctl-1/frame",
		"/etc/passwd": "/tmp/e2bctl-1/passwd", "../../etc/passwd": "/tmp/e2bctl-1/passwd",
	} {
		h := &namingHost{file: file}
		c := &runContext{directory: "/tmp/e2bctl-1"}
		if _, err := c.get(t.Context(), h, "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("get of %q: got error %v, want %v", file, err, fs.ErrNotExist)
		}
		if err := c.pull(t.Context(), h, state.New()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("pull of %q: got error %v, want %v", file, err, fs.ErrNotExist)
		}
		if len(h.opened) != 2 || h.opened[0] != want || h.opened[1] != want {
			t.Errorf("%q: opened %q, want %q twice", file, h.opened, want)
		}
	}
}
