package main

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// post sends code to run, and returns the answer.
func post(t *testing.T, address, code string, headers ...string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/run", strings.NewReader(code))
	must.Do(t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	must.Do(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// next returns the next event, "kind data", or "" at the end.
func next(from *bufio.Reader) string {
	kind, _ := from.ReadString('\n')
	data, _ := from.ReadString('\n')
	_, _ = from.ReadString('\n')
	return strings.TrimSpace(strings.TrimPrefix(kind, "event: ")) + strings.TrimRight(strings.TrimPrefix(data, "data:"), "\n")
}

func TestStream(t *testing.T) {
	sandboxtest.New(t).Setenv(t)
	client, err := sandbox.NewClient()
	must.Do(t, err)
	server := httptest.NewServer(handler(client))
	defer server.Close()

	// The first output arrives while the code waits.
	answer := post(t, server.URL, "print('first', flush=True)\nimport time, pathlib\nwhile not pathlib.Path('/tmp/go').exists(): time.sleep(0.01)\nprint('last')\n6 * 7")
	events := bufio.NewReader(answer.Body)
	if got, want := next(events), `stdout "first\n"`; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	for info, err := range client.List(t.Context(), nil) {
		must.Do(t, err)
		sb, err := client.Connect(t.Context(), info.ID)
		if err == nil {
			err = sb.Files.Write(t.Context(), "/tmp/go", []byte("x"), nil)
		}
		must.Do(t, err)
		must.Do(t, sb.Detach())
	}
	want := []string{`stdout "last\n"`, `result "42"`, `end ""`, ""}
	got := []string{next(events), next(events), next(events), next(events)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	events = bufio.NewReader(post(t, server.URL, "1 / 0").Body)
	if got := next(events); !strings.HasPrefix(got, "error ") || !strings.Contains(got, "ZeroDivisionError") {
		t.Errorf("got %s, want the traceback", got)
	}
	for next(events) != "" { // the answer ends after the sandbox
	}
	for range client.List(t.Context(), nil) {
		t.Error("a sandbox is left")
	}

	// No page of another site can run code.
	if got := post(t, server.URL, "1", "Origin", "https://example.com", "Sec-Fetch-Site", "cross-site"); got.StatusCode != http.StatusForbidden {
		t.Errorf("another site: %s", got.Status)
	}
}
