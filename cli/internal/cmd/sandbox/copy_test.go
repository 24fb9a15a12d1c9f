package sandbox

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/transfer"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestProgressOfACopy checks that a terminal shows the bytes of a copy that takes long, and nothing of it afterwards.
func TestProgressOfACopy(t *testing.T) {
	t.Parallel()
	for _, quiet := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("/filesystem.Filesystem/Stat", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/proto")
				_, _ = io.WriteString(w, "\x0a\x05\x0a\x01a\x10\x01") // an entry with the name a, which is a file
			})
			mux.HandleFunc("GET /files", func(w http.ResponseWriter, _ *http.Request) {
				for _, part := range []string{"one", "two", "three"} {
					_, _ = io.WriteString(w, part)
					must.Do(t, http.NewResponseController(w).Flush())
					<-time.After(time.Second)
				}
			})
			var errs cmdtest.Output
			o := &copyOptions{Quiet: quiet, Copy: transfer.Copy{IO: cmdutil.NewIOStreams(nil, nil, &errs)}}
			o.IO.ErrIsTerminal = true
			to := filepath.Join(t.TempDir(), "b")
			must.Do(t, o.copy(t.Context(), place{cmdtest.PipedSandbox(t, mux), "a"}, place{path: to}))
			want := "\rcopied 6 bytes\rcopied 11 bytes\rcopied 11 bytes\r               \r"
			if quiet {
				want = ""
			}
			if text, err := os.ReadFile(to); err != nil || string(text) != "onetwothree" || errs.String() != want {
				t.Errorf("quietly: %t: got %q, error %v, and showed %q, want %q", quiet, text, err, errs.String(), want)
			}
		})
	}
}
