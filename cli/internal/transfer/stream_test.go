package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/sandbox"
)

// starter is a sandbox in which a function answers the start of each program.
type starter struct {
	processconnect.UnimplementedProcessHandler
	start func() error // if it returns nil, the program succeeds
}

func (s starter) Start(_ context.Context, _ *connect.Request[process.StartRequest], to *connect.ServerStream[process.StartResponse]) error {
	if err := s.start(); err != nil {
		return err
	}
	return errors.Join(
		to.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 7}}}}),
		to.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true}}}}),
	)
}

// store returns the files of the sandbox, in a bubble.
func (s starter) store(t *testing.T) *sandboxStore {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(s))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // answers before the content has come
		if s.start() != nil {
			w.WriteHeader(http.StatusForbidden)
		} else {
			_, _ = io.WriteString(w, `[{"name":"b","path":"/b","type":"file"}]`)
		}
	})
	return &sandboxStore{sandbox: cmdtest.PipedSandbox(t, mux)}
}

// TestEndOfStreams checks that a copy between sandboxes ends at once when one of them fails, even if the other one sends or
// takes nothing, and whose error it returns.
func TestEndOfStreams(t *testing.T) {
	t.Parallel()
	refuses := func(code connect.Code) func(<-chan struct{}) error {
		return func(<-chan struct{}) error { return connect.NewError(code, errors.New("refused")) }
	}
	hangs := func(over <-chan struct{}) error { <-over; return errors.ErrUnsupported }
	takes := func(<-chan struct{}) error { return nil }
	mine := errors.New("mine")
	for name, tt := range map[string]struct {
		from, to func(over <-chan struct{}) error
		ended    bool // the context of the caller
		want     error
		says     string
	}{
		"the source hangs":    {hangs, refuses(connect.CodePermissionDenied), false, sandbox.ErrForbidden, "upload"},
		"the target hangs":    {refuses(connect.CodeNotFound), hangs, false, fs.ErrNotExist, "download"},
		"both hang":           {hangs, hangs, true, mine, ""},
		"the target is early": {refuses(connect.CodeNotFound), takes, false, fs.ErrNotExist, "download"}, // it answers without the content
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				over := make(chan struct{})
				from := starter{start: func() error {
					if name == "the target is early" {
						<-time.After(time.Second)
					}
					return tt.from(over)
				}}.store(t)
				to := starter{start: func() error { return tt.to(over) }}.store(t)
				defer close(over)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if tt.ended {
					time.AfterFunc(time.Second, func() { cancel(mine) })
				}
				limit := time.AfterFunc(time.Hour, func() { cancel(errors.New("the copy did not end")) })
				defer limit.Stop()
				err := (&Copy{}).stream(ctx, from, "a", to, "b")
				if !errors.Is(err, tt.want) || !strings.HasPrefix(err.Error(), tt.says) || tt.ended != (ctx.Err() != nil) {
					t.Errorf("got %v, want %v with %q", err, tt.want, tt.says)
				}
			})
		})
	}
}

// TestNothingStaysOfACopy checks that a copy leaves no temporary directory, and closes each file that it reads.
func TestNothingStaysOfACopy(t *testing.T) {
	source, target, temporary := tree(t, "tree/in", "file"), tree(t), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv("TMP", temporary) // on Windows
	for name, store := range map[string]Store{"whole": dirStore{source}, "in part": lostStore{dirStore{source}}} {
		c := Copy{Recursive: true}
		if err := c.Run(t.Context(), End{store, "tree"}, End{dirStore{target}, name}); (err == nil) != (name == "whole") {
			t.Errorf("%s: got error %v", name, err)
		}
		if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
			t.Errorf("%s: %v was left, %v", name, left, err)
		}
	}
	open := 0
	c := Copy{IO: cmdutil.NewIOStreams(strings.NewReader(""), io.Discard, io.Discard), Command: &cobra.Command{}}
	for _, to := range []End{{Path: filepath.Join(target, "a")}, {Path: stream}, {dirStore{target}, "b"}} {
		if err := c.Run(t.Context(), End{countingStore{dirStore{source}, &open}, "file"}, to); err != nil || open != 0 {
			t.Errorf("to %+v: got error %v, and %d files stay open", to, err, open)
		}
	}
}

// TestBoundedReads checks the exact bound of a file, however it is read.
func TestBoundedReads(t *testing.T) {
	t.Parallel()
	for size, fits := range map[int]bool{0: true, 4: true, 5: true, 6: false, 100: false} {
		for _, piece := range []int{1, 3, 5, 6, 1000} {
			r := &bounded{r: strings.NewReader(strings.Repeat("x", size)), left: 5, limit: 5}
			n, err := 0, error(nil)
			for p := make([]byte, piece); err == nil; {
				var got int
				got, err = r.Read(p)
				n += got
			}
			if n > 5 || fits && n != size {
				t.Errorf("%d bytes by %d: got %d", size, piece, n)
			}
			if errors.Is(err, io.EOF) != fits || errors.Is(err, sandbox.ErrTooLarge) == fits {
				t.Errorf("%d bytes by %d: got %d and error %v, want that it fits: %v", size, piece, n, err, fits)
			}
			if !fits && !strings.Contains(err.Error(), "more than 5 bytes") {
				t.Errorf("got %v, want the bound", err)
			}
		}
	}
}
