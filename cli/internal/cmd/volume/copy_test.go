package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// A download that breaks is an error, and what was there before stays.
func TestBrokenDownload(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/volumes":
			fmt.Fprint(w, `[{"volumeID":"v","name":"data"}]`)
		case r.URL.Path == "/volumes/v":
			fmt.Fprint(w, `{"volumeID":"v","name":"data","token":"t"}`)
		case r.URL.Query().Get("path") == "whole":
			fmt.Fprint(w, "the whole file")
		default:
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
		}
	}))
	t.Cleanup(server.Close)
	client, err := sandbox.NewClient(sandbox.WithAPIKey(api.Key("e2b_"+strings.Repeat("0", 40))),
		sandbox.WithAPIURL(server.URL), sandbox.WithVolumeURL(server.URL), sandbox.WithEnvFile(""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // it has only asked
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	var out bytes.Buffer
	o := &copyOptions{IO: &cmdutil.IOStreams{Out: &out, Err: io.Discard}, Volumes: client.Volumes}
	for _, test := range []struct {
		source string
		broken bool
	}{{"whole", false}, {"half", true}} {
		for _, to := range []string{file, stream} {
			if err := o.copyFrom(t.Context(), "data", test.source, to); errors.Is(err, io.ErrUnexpectedEOF) != test.broken || !test.broken && err != nil {
				t.Errorf("%s to %s: got %v, want it to be broken: %v", test.source, to, err, test.broken)
			}
		}
		if text, err := os.ReadFile(file); string(text) != "the whole file" || err != nil {
			t.Errorf("after %s: got %q, %v, want the whole file", test.source, text, err)
		}
	}
	if left, err := os.ReadDir(dir); len(left) != 1 || err != nil {
		t.Errorf("got %v, %v, want the file alone", left, err)
	}
}
