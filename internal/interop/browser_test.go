//go:build linux

package interop

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/internal/protocol"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

//go:embed testdata/browser/page.js
var browserScript string

// TestBrowser opens pages of a sandbox in a real browser. A signed URL at the shared address
// shows a page that works, but has no origin, so that nothing of the address is open to it. A
// program behind a developer's own proxy, which routes by header, may do everything that any
// site may.
func TestBrowser(t *testing.T) {
	t.Parallel()
	browser := pinned.Program(t, "chromium-headless-shell", "chromium-headless-shell")
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t)
	write := func(name, content string) {
		t.Helper()
		must.Do(t, sb.Files.Write(patience.Context(t), name, []byte(content), nil))
	}
	links := map[string]string{}
	sign := func(key, name string, of func(string, *sandbox.SignedURLParams) (string, error)) {
		t.Helper()
		link, err := of(name, nil)
		must.Do(t, err)
		links[key] = link
	}
	for key, file := range map[string][2]string{
		"text":    {"a.txt", "text of a file"},
		"picture": {"a.svg", `<svg xmlns="http://www.w3.org/2000/svg" width="7" height="7"/>`},
		"module":  {"a.mjs", `export const name = "module"`},
		"worker":  {"worker.js", "self.postMessage?.(1)"},
	} {
		write(file[0], file[1])
		sign(key, file[0], sb.Files.DownloadURL)
	}
	sign("upload", "up.txt", sb.Files.UploadURL)
	sign("page", "page.html", sb.Files.DownloadURL)

	t.Run("signed", func(t *testing.T) {
		got := openPage(t, browser, links["page"], func(page string) { write("page.html", page) }, sb.ID(), links, []string{
			"cookies", "localStorage", "indexedDB", "caches", "serviceWorker", "worker", "frame", "api", "routedByHeader", "signedAndRouted", "everyHeader",
			"picture", "fetch", "preflight", "range", "module", "upload",
		})
		want := map[string]string{
			"origin": "null", "cookies": "no: SecurityError", "localStorage": "no: SecurityError", "indexedDB": "no: SecurityError", "caches": "no: SecurityError",
			"serviceWorker": "no: SecurityError", "worker": "no: SecurityError", "frame": "no: TypeError", "api": "no: TypeError",
			"routedByHeader": "no: TypeError", "signedAndRouted": "no: TypeError", "everyHeader": "no: TypeError",
			"picture": "yes: 7 wide", "fetch": "yes: text of a file", "preflight": "yes: text of a file", "range": "yes: 206 text", "module": "yes: module", "upload": "yes: 200",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("what the page could do (-want +got):\n%s", diff)
		}
	})

	t.Run("routed by header", func(t *testing.T) {
		ctx := patience.Context(t)
		if _, err := sb.Commands.Start(ctx, "exec python3 -m http.server 3000", nil); err != nil {
			t.Fatal(err)
		}
		must.Do(t, sb.WaitPort(ctx, 3000))
		to, err := url.Parse(cloud.URL())
		must.Do(t, err)
		proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Set(protocol.HeaderSandboxID, sb.ID())
			r.Out.Header.Set(protocol.HeaderSandboxPort, "3000")
		}})
		defer proxy.Close()
		links := map[string]string{"text": "/a.txt", "picture": "/a.svg", "worker": "/worker.js"}
		got := openPage(t, browser, proxy.URL+"/page.html", func(page string) { write("page.html", page) }, sb.ID(), links, []string{
			"cookies", "localStorage", "indexedDB", "caches", "serviceWorker", "worker", "picture", "fetch",
		})
		want := map[string]string{
			"origin": proxy.URL, "cookies": "yes: mine=1", "localStorage": "yes: 1", "indexedDB": "yes: open", "caches": "yes: open", "serviceWorker": "yes: registered",
			"worker": "yes: runs", "picture": "yes: 7 wide", "fetch": "yes: text of a file",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("what the page could do (-want +got):\n%s", diff)
		}
	})
}

// openPage writes a page that tries the features called names, opens it in a browser, and
// returns the page's report. The report comes by a form, which is one more thing that works.
func openPage(t *testing.T, browser, link string, write func(page string), id string, links map[string]string, names []string) map[string]string {
	t.Helper()
	reports := make(chan map[string]string, 1)
	reporter := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var report map[string]string
		if text := r.PostFormValue("report"); text != "" {
			if err := json.Unmarshal([]byte(text), &report); err != nil {
				t.Error(err)
			}
			reports <- report
		}
	}))
	t.Cleanup(reporter.Close)
	var constants strings.Builder
	for name, value := range map[string]any{"REPORT": reporter.URL, "SANDBOX": id, "LINKS": links, "NAMES": names} {
		text, err := json.Marshal(value)
		must.Do(t, err)
		fmt.Fprintf(&constants, "const %s = %s;\n", name, text)
	}
	write("<!doctype html><body><script>\n" + constants.String() + browserScript + "</script>")

	// The browser's own confinement does not work everywhere that tests do, for instance not as
	// root. The page is the test's.
	run := exec.CommandContext(t.Context(), browser, "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-port=0", "--user-data-dir="+t.TempDir(), link)
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var output bytes.Buffer // a pipe, which the browser's other processes hold, too: Wait waits for them
	run.Stdout, run.Stderr = &output, &output
	must.Do(t, run.Start())
	defer func() {
		_ = syscall.Kill(-run.Process.Pid, syscall.SIGKILL)
		_ = run.Wait() // it was killed
		if t.Failed() {
			t.Logf("the browser said:\n%s", &output)
		}
	}()
	return patience.Receive(t, "the page's report", reports)
}
