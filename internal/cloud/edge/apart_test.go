package edge

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestApartSendsFinalAnswers checks that an answer is sent from status 200 on, and no hint before it.
func TestApartSendsFinalAnswers(t *testing.T) {
	t.Parallel()
	for status, sent := range map[int]bool{http.StatusContinue: false, http.StatusEarlyHints: false, 199: false, http.StatusOK: true, http.StatusNoContent: true} {
		recorded := httptest.NewRecorder()
		recorded.Code = 0
		w := &apart{header: http.Header{}}
		w.seal = func() {}
		w.ResponseWriter = recorded
		w.WriteHeader(status)
		if got := recorded.Code == status; got != sent {
			t.Errorf("status %d: got sent %v, want %v", status, got, sent)
		}
	}
}

// TestRefusedByHeaders checks the reasons for which a request to the shared address is refused.
func TestRefusedByHeaders(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path, id, port, origin string
		reason                 string
	}{
		"named twice by a page": {filesPath + "?signature=v1_x", "i1", "80", "https://page.test", messageTwice},
		"no port":               {"/", "i1", "", "", "missing header"},
		"no sandbox":            {"/", "", "80", "", "missing header"},
	} {
		r := httptest.NewRequest(http.MethodGet, tt.path, nil)
		for header, value := range map[string]string{protocol.HeaderSandboxID: tt.id, protocol.HeaderSandboxPort: tt.port, "Origin": tt.origin} {
			if value != "" {
				r.Header.Set(header, value)
			}
		}
		if to, found := findShared(r); !found || to.kind != refused || to.status != http.StatusBadRequest || to.reason != tt.reason {
			t.Errorf("%s: got %+v, %v, want 400 and %q", name, to, found, tt.reason)
		}
	}
}
