package sandbox

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

// Kernels that answer without a token must not be used with tools.
func TestToolsNeedPrivateKernels(t *testing.T) {
	t.Parallel()
	s := newService(t)
	host := runHost{s.sandbox()}
	if err := host.CheckPrivate(t.Context()); !errors.Is(err, ErrPublicKernel) || !strings.Contains(err.Error(), "WithPrivateTraffic()") {
		t.Errorf("open to all: %v", err)
	}
	s.rest = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Access-Token")+r.Header.Get("E2b-Traffic-Access-Token") != "" {
			t.Error("asked with a token")
		}
		w.WriteHeader(http.StatusForbidden)
	}
	if err := host.CheckPrivate(t.Context()); err != nil {
		t.Errorf("private: %v", err)
	}
}
