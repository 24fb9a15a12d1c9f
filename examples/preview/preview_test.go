package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestPreview(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)).Setenv(t)
	site := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(site, "index.html"), []byte("<h1>Hello</h1>\n"), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	listener := listen(t)
	ended := make(chan error, 1)
	go func() {
		ended <- preview(ctx, listener, false, site, "exec python3 -m http.server 8000", 8000, t.Output())
	}()
	body := ""
	patience.Until(t, "the page is shown", func() bool {
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
		body = page(t, "http://"+listener.Addr().String())
		return body != ""
	})
	if body != "<h1>Hello</h1>\n" {
		t.Errorf("the page is %q", body)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("its end: %v", err)
	}
}

// page returns the shown page, or "" while the server is starting.
func page(t *testing.T, address string) string {
	t.Helper()
	response, err := http.Get(address)
	must.Do(t, err)
	defer response.Body.Close()
	if response.StatusCode == http.StatusServiceUnavailable {
		return ""
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s %q, %v", response.Status, body, err)
	}
	return string(body)
}

// TestPreviewEnds checks that the preview ends when its server does, and gives the
// reason.
func TestPreviewEnds(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)).Setenv(t)
	err := preview(t.Context(), listen(t), true, t.TempDir(), "echo no such app >&2; exit 3", 8000, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such app") {
		t.Error(err)
	}
	if err := preview(t.Context(), listen(t), true, "", "true", 8000, io.Discard); err == nil {
		t.Error("no directory was no error")
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	return listener
}
