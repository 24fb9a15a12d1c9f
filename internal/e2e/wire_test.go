//go:build linux

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// exchange sends the bytes of a request to the cloud and returns the status of every
// answer, interim ones too, and the body of the last one.
func exchange(t *testing.T, cloud *sandboxtest.Cloud, request string) (statuses, body string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(cloud.URL(), "http://"))
	must.Do(t, err)
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	for in := bufio.NewReader(conn); ; {
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%q: %v", request, err)
		}
		statuses = strings.TrimSpace(fmt.Sprintf("%s %d", statuses, answer.StatusCode))
		if answer.StatusCode == http.StatusContinue {
			continue
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatalf("%q: %v", request, err)
		}
		return statuses, string(text)
	}
}

// TestWire sends requests that no client of ours makes all the way to the daemon of a
// sandbox. The answers of each hop are tested in its own package.
func TestWire(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	ask := func(line, body string, header ...string) string {
		header = append(header, "Host: localhost", "Connection: close", "X-API-KEY: "+string(cloud.APIKey()), fmt.Sprintf("Content-Length: %d", len(body)))
		return line + " HTTP/1.1\r\n" + strings.Join(header, "\r\n") + "\r\n\r\n" + body
	}
	status, created := exchange(t, cloud, ask("POST /sandboxes", `{"templateID":"base","timeout":300}`, "Content-Type: application/json"))
	found := regexp.MustCompile(`"sandboxID":"(\w+)"`).FindStringSubmatch(created)
	if status != "201" || found == nil {
		t.Fatalf("create: got %s %s, want 201 and an id", status, created)
	}
	id := found[1]
	defer func() {
		if status, text := exchange(t, cloud, ask("DELETE /sandboxes/"+id, "")); status != "204" {
			t.Errorf("kill: got %s %s, want 204", status, text)
		}
	}()
	inside := func(port int, line, contentType, body string, header ...string) string {
		return ask(line, body, append(header, "E2b-Sandbox-Id: "+id, fmt.Sprintf("E2b-Sandbox-Port: %d", port), "Content-Type: "+contentType)...)
	}
	const octets, stream, form = "application/octet-stream", "application/connect+json", "multipart/form-data; boundary=b"
	for _, test := range []struct{ name, request, status, body string }{
		{"asked first", inside(49983, "POST /files?path=asked", octets, "text", "Expect: 100-continue"), "100 200", "/home/user/asked"},
		{"refused before the body", inside(49983, "POST /files?path=a&username=you", octets, "text", "Expect: 100-continue"), "401", "unknown user you"},
		{"empty form", inside(49983, "POST /files?path=no", form, ""), "500", "error reading form"},
		{"path twice", inside(49983, "POST /files?path=no&path=no", octets, "text"), "400", "multiple values"},
		{"half a message", inside(49983, "POST /process.Process/Start", stream, "\x00\x00\x00\x00\x1a{"), "200", `"code":"invalid_argument"`},
		{"no command", inside(49983, "POST /process.Process/Start", stream, "\x00\x00\x00\x00\x02{}"), "200", `"exitCode":127`},
		{"gzip", inside(49983, "POST /process.Process/List", "application/json", "{}", "Accept-Encoding: gzip"), "200", "\x1f\x8b"},
		{"port 0", inside(0, "GET /", octets, ""), "502", `"port":0`},
		{"port 70000", inside(70000, "GET /", octets, ""), "502", `"port":70000`},
		{"page", inside(3000, "GET /", octets, "", "User-Agent: Mozilla/5.0", "Accept: text/html"), "502", "<h1>Closed Port Error</h1>"},
		{"nothing was written", inside(49983, "GET /files?path=no", octets, ""), "404", "does not exist"},
		{"timeout of an unknown id", ask("POST /sandboxes/inobody/connect", `{"timeout":86401}`), "400", "Timeout cannot be greater"},
		{"metrics of an unknown id", ask("GET /sandboxes/inobody/metrics", ""), "404", "doesn't exist"},
	} {
		if status, body := exchange(t, cloud, test.request); status != test.status || !strings.Contains(body, test.body) {
			t.Errorf("%s: got %s %q, want %s and %q in it", test.name, status, body, test.status, test.body)
		}
	}
}

// TestDirectoryOfCommands checks that a command that names no directory starts in the
// template's, for every user, and that a relative path is below the user's own home.
func TestDirectoryOfCommands(t *testing.T) {
	t.Parallel()
	for _, template := range []string{"base", "code-interpreter-v1"} {
		sb := shared(t).Create(t, sandbox.WithTemplate(template))
		for _, user := range []string{"user", "root"} {
			home := map[string]string{"user": "/home/user\n", "root": "/root\n"}[user]
			start := home
			if template == "code-interpreter-v1" { // it has a working directory
				start = "/home/user\n"
			}
			result, err := sb.Commands.Run(t.Context(), "pwd", &sandbox.CommandParams{User: user})
			if err != nil || result.Stdout != start {
				t.Errorf("%s in %s: got %q, %v, want %q and no error", user, template, result.Stdout, err, start)
			}
			result, err = sb.Commands.Run(t.Context(), "pwd", &sandbox.CommandParams{User: user, Cwd: "~"})
			if err != nil || result.Stdout != home {
				t.Errorf("home of %s in %s: got %q, %v, want %q and no error", user, template, result.Stdout, err, home)
			}
		}
	}
}
