package sandbox

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// uploads are the calls that send the bytes of a reader.
func uploads(s *service) map[string]func(ctx context.Context, r io.Reader) error {
	files, client := s.sandbox().Files, s.client()
	volume := client.Volumes.volume(&api.Volume{ID: "vol", Name: "vol", Token: "token"})
	return map[string]func(ctx context.Context, r io.Reader) error{
		"WriteFrom": func(ctx context.Context, r io.Reader) error { return files.WriteFrom(ctx, "/x", r, nil) },
		"WriteFrom with gzip": func(ctx context.Context, r io.Reader) error {
			return files.WriteFrom(ctx, "/x", r, &FileParams{Gzip: true})
		},
		"WriteFiles": func(ctx context.Context, r io.Reader) error {
			return files.WriteFiles(ctx, []FileContent{{Path: "/x", Content: r}, {Path: "/y"}}, nil)
		},
		"WriteTar": func(ctx context.Context, r io.Reader) error { return files.WriteTar(ctx, "/x", r, nil) },
		"a volume": func(ctx context.Context, r io.Reader) error { return volume.WriteFrom(ctx, "/x", r, nil) },
	}
}

// TestSilentUpload checks that an upload ends although its reader is silent: when its destination
// has ended or is paused, when the service does not answer, and when its caller cancels it. Until
// then it waits for its reader as long as that takes.
func TestSilentUpload(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer  http.HandlerFunc // to all questions after the silence; nil: the usual one
		cancels bool
		want    error
		within  time.Duration
	}{
		"missing":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, false, ErrGone, 2 * askInterval},
		"no answer": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false, api.ErrTimeout, DefaultIdleTimeout + 2*(askInterval+stateTimeout)},
		"cancelled": {nil, true, context.Canceled, 0},
	} {
		for _, what := range []string{"WriteFrom", "WriteFrom with gzip", "WriteFiles", "WriteTar", "a volume"} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newPipedService(t)
					var silence atomic.Bool
					s.files = func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
					s.control = func(w http.ResponseWriter, r *http.Request) {
						if silence.Load() && r.Method == http.MethodGet && test.answer != nil {
							test.answer(w, r)
						}
					}
					upload := uploads(s)[what]
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					r, w := io.Pipe()
					defer w.Close()
					ended := make(chan error, 1)
					go func() { ended <- upload(ctx, r) }()
					must.Do(t, second(w.Write([]byte("begun"))))
					<-time.After(2 * DefaultIdleTimeout)
					select {
					case err := <-ended:
						t.Fatalf("ended with %v while its reader was silent, want that it waits", err)
					default:
					}
					silence.Store(true)
					start := time.Now()
					if test.cancels {
						cancel()
					}
					err, want := <-ended, test.want
					if want == ErrGone && what == "a volume" { //nolint:errorlint // it is a name in a table
						want = api.ErrNotFound
					}
					if !errors.Is(err, want) || time.Since(start) > test.within {
						t.Errorf("got %v after %v, want %v within %v", err, time.Since(start), want, test.within)
					}
				})
			})
		}
	}
}

// TestSilentUploadToAPausedSandbox checks the error of an upload whose sandbox is paused.
func TestSilentUploadToAPausedSandbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newPipedService(t)
		s.files = func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
		s.control = func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = io.WriteString(w, `{"sandboxID":"`+testID+`","state":"paused"}`)
			}
		}
		r, w := io.Pipe()
		defer w.Close()
		err := s.sandbox().Files.WriteFrom(t.Context(), "/x", r, nil)
		if gone, ok := errors.AsType[*GoneError](err); !ok || gone.State != GonePaused {
			t.Errorf("got %v, want a GoneError with GonePaused", err)
		}
	})
}

// TestUploadAsksNothingWhileBytesFlow checks that an upload asks about its sandbox only in silence.
func TestUploadAsksNothingWhileBytesFlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newPipedService(t)
		s.files = func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
		sb := s.sandbox()
		send := func(pause time.Duration) int {
			left := 20
			must.Do(t, sb.Files.WriteFrom(t.Context(), "/x", readerFunc(func(p []byte) (int, error) {
				if left == 0 {
					return 0, io.EOF
				}
				<-time.After(pause)
				left--
				return 1, nil
			}), nil))
			return s.seen("GET /sandboxes/")
		}
		if asked := send(askInterval / 2); asked != 0 {
			t.Errorf("asked %d times while bytes flowed, want none", asked)
		}
		if asked := send(3 * askInterval); asked == 0 {
			t.Error("asked nothing about a sandbox in silence")
		}
	})
}
