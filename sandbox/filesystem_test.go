package sandbox

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// endless returns zeros forever: as a message of protobuf, nothing that is known.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestAnswersAboutFiles: only an answer of the daemon itself says that a file is
// missing, and anything that is not such an answer is an error, however long it
// is.
func TestAnswersAboutFiles(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status     int
		kind, body string
		fails      bool
	}{
		"the daemon's":    {http.StatusNotFound, "application/json", `{"code":"not_found","message":"file not found"}`, false},
		"a proxy's":       {http.StatusNotFound, "text/html", "<h1>Not Found</h1>", true},
		"a proxy's JSON":  {http.StatusNotFound, "application/json", `{"error":"no route"}`, true},
		"another service": {http.StatusOK, "text/html", "<h1>Welcome</h1>", true},
		"no protobuf":     {http.StatusOK, "application/proto", "\xff\xff\xff\xff", true},
		"nothing":         {http.StatusOK, "application/proto", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.raw = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasPrefix(r.URL.Path, "/filesystem.") {
					return false
				}
				w.Header().Set("Content-Type", tt.kind)
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
				return true
			}
			found, err := s.sandbox().Files.Exists(t.Context(), "x", nil)
			if found || (err != nil) != tt.fails {
				t.Errorf("%v, %v", found, err)
			}
		})
	}
	s := newService(t)
	s.raw = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/filesystem.") {
			return false
		}
		w.Header().Set("Content-Type", "application/proto")
		_, _ = io.Copy(w, endless{})
		return true
	}
	if _, err := s.sandbox().Files.List(t.Context(), "x", nil); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a listing without an end: %v", err)
	}
}
