package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
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

// Only an answer of the kernels shows that they are open: a sandbox that is gone, paused
// or busy has its own error.
func TestOnlyAnAnswerShowsPublicKernels(t *testing.T) {
	t.Parallel()
	gone := fmt.Sprintf(`{"sandboxId":%q,"message":"The sandbox was not found","code":502}`, testID)
	closed := fmt.Sprintf(`{"sandboxId":%q,"message":"The sandbox is running but port is not open","port":8888,"code":502}`, testID)
	for _, test := range []struct {
		status int
		body   string
		want   error
	}{
		{http.StatusOK, "[]", ErrPublicKernel},
		{http.StatusNoContent, "", ErrPublicKernel},
		{http.StatusBadGateway, gone, ErrGone},
		{http.StatusBadGateway, closed, ErrPortClosed},
		{http.StatusBadGateway, "", api.ErrUnavailable},
		{http.StatusServiceUnavailable, "", api.ErrRetryable},
		{http.StatusTooManyRequests, "", api.ErrRateLimited},
		{http.StatusGatewayTimeout, "", api.ErrTimeout},
		{http.StatusConflict, "", api.ErrConflict},
		{http.StatusNotFound, "", api.ErrNotFound},
		{http.StatusBadRequest, "", api.ErrInvalidArgument},
		{http.StatusInternalServerError, "", nil},
	} {
		s := newService(t)
		s.rest = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.body)
		}
		err := runHost{s.sandbox()}.CheckPrivate(t.Context())
		if err == nil || errors.Is(err, ErrPublicKernel) != (test.want == ErrPublicKernel) || test.want != nil && !errors.Is(err, test.want) { //nolint:errorlint // one of the table
			t.Errorf("status %d with %q: %v, want %v", test.status, test.body, err, test.want)
		}
	}
}
