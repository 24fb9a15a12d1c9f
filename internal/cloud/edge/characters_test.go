package edge

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestCharactersOfIDs checks each character that the id of a sandbox may have, and those beside them.
func TestCharactersOfIDs(t *testing.T) {
	t.Parallel()
	const allowed = "0123456789abcdefghijklmnopqrstuvwxyz"
	for c := rune(0); c < 0x180; c++ {
		want := forSandbox
		if !strings.ContainsRune(allowed, c) {
			want = refused
		}
		if got := parse("8080", "a"+string(c)+"b"); got.kind != want {
			t.Errorf("%q: got kind %v, want %v", c, got.kind, want)
		}
	}
}

// TestIsPreflight checks that only the method OPTIONS with the header of a preflight is one.
func TestIsPreflight(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodOptions, http.MethodGet, http.MethodPost, http.MethodHead} {
		for _, asked := range []string{"", http.MethodGet} {
			r := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
			r.Header.Set("Access-Control-Request-Method", asked)
			if got, want := isPreflight(r), method == http.MethodOptions && asked != ""; got != want {
				t.Errorf("%s that asks for %q: got %v, want %v", method, asked, got, want)
			}
		}
	}
}
