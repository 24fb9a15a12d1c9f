//go:build linux

package envdclient_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/cloud/envd"
	"github.com/e2bctl/e2bctl/internal/cloud/envdclient"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "secret"

// serve starts an envd in a directory of the test.
func serve(t *testing.T) (*envdclient.Client, *envd.Server, string) {
	t.Helper()
	home := t.TempDir()
	me := envd.User{Name: "me", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: home, Shell: "/bin/sh"}
	daemon, err := envd.New(envd.Options{Users: []envd.User{me}, Token: token, Path: os.Getenv("PATH"), Envs: map[string]string{"FROM": "envd"}})
	must.Do(t, err)
	server := httptest.NewServer(daemon.Handler())
	t.Cleanup(func() {
		if err := daemon.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	client := connect(t, server.Listener.Addr().String(), token)
	return client, daemon, home
}

func connect(t *testing.T, address, token string) *envdclient.Client {
	t.Helper()
	client := envdclient.New(func(ctx context.Context, port int) (net.Conn, error) {
		if port != 49983 {
			t.Errorf("got port %d, want that of envd", port)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}, token)
	t.Cleanup(client.Close)
	return client
}

func TestRun(t *testing.T) {
	t.Parallel()
	client, _, home := serve(t)
	var stdout, stderr strings.Builder
	command := envdclient.Shell("echo $FROM $MORE; pwd; echo bad >&2; exit 3")
	command.Envs, command.Dir, command.User = map[string]string{"MORE": "more"}, "~", "me"
	command.Stdout, command.Stderr = &stdout, &stderr
	err := client.Run(t.Context(), command)
	if exit, ok := errors.AsType[*envdclient.ExitError](err); !ok || exit.Code != 3 || err.Error() != "exit status 3" {
		t.Errorf("got %v, want exit status 3", err)
	}
	if want := "envd more\n" + home + "\n"; stdout.String() != want || stderr.String() != "bad\n" {
		t.Errorf("got %q and %q, want %q", stdout.String(), stderr.String(), want)
	}
	if err := client.Run(t.Context(), envdclient.Shell("kill -9 $$")); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v, want it to be killed", err)
	}
	for want, command := range map[string]envdclient.Command{
		"invalid username: 'nosuch'": {Args: []string{"true"}, User: "nosuch"}, "cwd '/no such' does not exist": {Args: []string{"true"}, Dir: "/no such"},
	} {
		if err := client.Run(t.Context(), command); err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	command = envdclient.Shell("echo text")
	command.Stdout = failing{}
	if err := client.Run(t.Context(), command); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v, want the error of who reads it", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// TestEnds checks that a command whose call is cancelled ends, and that a started command
// continues.
func TestEnds(t *testing.T) {
	t.Parallel()
	client, daemon, home := serve(t)
	why := errors.New("superseded")
	ctx, cancel := context.WithCancelCause(t.Context())
	started := envdclient.Shell("echo started; sleep 1000")
	started.Stdout = onWrite(func() { cancel(why) })
	if err := client.Run(ctx, started); !errors.Is(err, why) {
		t.Errorf("got %v, want why it was given up", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if err := client.Run(ctx, envdclient.Shell("sleep 1000")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want its deadline", err)
	}
	ctx, stop = context.WithCancel(t.Context())
	if _, err := client.Start(ctx, envdclient.Shell("while [ ! -e "+home+"/go ]; do sleep 0.01; done; echo > "+home+"/went")); err != nil {
		t.Fatal(err)
	}
	stop()
	must.Do(t, os.WriteFile(filepath.Join(home, "go"), nil, 0o600))
	patience.Until(t, "it has run on", func() bool { return exists(filepath.Join(home, "went")) })
	must.Do(t, daemon.Close())
	if _, err := client.Start(t.Context(), envdclient.Shell("true")); err == nil {
		t.Error("got no error from an envd that is closed")
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

type onWrite func()

func (f onWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// TestBuilding checks that the calls for builds work without any program in the sandbox.
func TestBuilding(t *testing.T) {
	t.Parallel()
	client, server, home := serve(t)
	must.Do(t, os.MkdirAll(filepath.Join(home, "from", "in"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(home, "from", "in", "file"), []byte("text"), 0o640))
	to := filepath.Join(home, "to")
	place := func(p envdclient.Placement) func(io.Reader) error {
		return func(archive io.Reader) error { return client.Place(t.Context(), archive, -1, p) }
	}
	must.Do(t, client.Pack(t.Context(), home+"/from", place(envdclient.Placement{Target: to, User: "me"})))
	if text, err := os.ReadFile(filepath.Join(to, "in", "file")); string(text) != "text" || err != nil {
		t.Errorf("got %q and error %v, want text", text, err)
	}
	for _, want := range []bool{true, false} {
		if changed, err := client.MakeDir(t.Context(), home+"/a/b", "me"); changed != want || err != nil {
			t.Errorf("got %v and error %v, want %v", changed, err, want)
		}
	}
	must.Do(t, client.Resize(t.Context(), 300<<20, 3))
	recorded := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	request.Header.Set(protocol.HeaderAccess, server.Token())
	server.Handler().ServeHTTP(recorded, request)
	if text := recorded.Body.String(); !strings.Contains(text, `"mem_total":314572800,`) || !strings.Contains(text, `"cpu_count":3,`) {
		t.Errorf("after a resize, envd reports %s", text)
	}
	good := envdclient.Placement{Target: to, User: "me"}
	_, dirError := client.MakeDir(t.Context(), "relative", "me")
	_, _, accountError := client.Account(t.Context(), "bad name", false)
	for name, err := range map[string]error{
		"a source that is not there": client.Pack(t.Context(), home+"/none", place(good)),
		"no target":                  client.Pack(t.Context(), home+"/from", place(envdclient.Placement{User: "me"})),
		"no such user":               client.Pack(t.Context(), home+"/from", place(envdclient.Placement{Target: to, User: "nobody-here"})),
		"no such owner":              client.Pack(t.Context(), home+"/from", place(envdclient.Placement{Target: to, User: "me", Owner: "nobody-here"})),
		"no such group":              client.Pack(t.Context(), home+"/from", place(envdclient.Placement{Target: to, User: "me", Owner: "me:nobody-here"})),
		"a bad mode":                 client.Pack(t.Context(), home+"/from", place(envdclient.Placement{Target: to, User: "me", Mode: "x"})),
		"no archive":                 client.Place(t.Context(), strings.NewReader("text"), 4, good),
		"a large one that is none":   client.Place(t.Context(), strings.NewReader(strings.Repeat("x", 8<<20)), 8<<20, good),
		"a bad source":               client.Place(t.Context(), iotest.ErrReader(io.ErrNoProgress), 4, good),
		"a short one":                client.Place(t.Context(), strings.NewReader("text"), 400, good),
		"a relative directory":       dirError,
		"no memory":                  client.Resize(t.Context(), 0, 1),
		"a bad account":              accountError,
	} {
		if err == nil || len(err.Error()) > 2000 || strings.Contains(err.Error(), "/local/") {
			t.Errorf("%s: got %v, want a short error", name, err)
		}
	}
}

// TestHostile checks that answers of a sandbox are bounded, and that the errors describe them.
func TestHostile(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"nothing":         "",
		"no HTTP":         strings.Repeat("x", 1000),
		"another status":  "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ntext",
		"a redirect":      "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
		"a large message": "HTTP/1.1 200 OK\r\nContent-Type: application/connect+proto\r\n\r\n\x00\x7f\xff\xff\xff",
		"a large head":    "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 2<<20) + "\r\n\r\n",
		"no exit": "HTTP/1.1 200 OK\r\nContent-Type: application/connect+proto\r\nContent-Length: 11\r\n\r\n" +
			"\x00\x00\x00\x00\x06\x0a\x04\x1a\x02\x10\x00", // the end of a command that did not exit
		"a stream that ends": "HTTP/1.1 200 OK\r\nContent-Type: application/connect+proto\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := envdclient.New(func(context.Context, int) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					defer theirs.Close()
					buffer := make([]byte, 1<<16)
					_, _ = theirs.Read(buffer)
					_, _ = io.WriteString(theirs, answer)
				}()
				return ours, nil
			}, token)
			defer client.Close()
			if err := client.Run(t.Context(), envdclient.Shell("true")); err == nil || len(err.Error()) > 3000 {
				t.Errorf("run: got %v, want a short error", err)
			}
			if _, err := client.Start(t.Context(), envdclient.Shell("true")); err == nil || len(err.Error()) > 3000 {
				t.Errorf("start: got %v, want a short error", err)
			}
			err := client.Place(t.Context(), strings.NewReader("text"), 4, envdclient.Placement{Target: "/a"})
			if fine := strings.HasPrefix(answer, "HTTP/1.1 200 OK\r\nContent"); (err == nil) != fine || err != nil && len(err.Error()) > 3000 {
				t.Errorf("write: got %v, want a short error unless it says that it has", err)
			}
		})
	}
}

func TestOnlySleeps(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]bool{
		"sleep 20": true, " sleep 0.5s ": true, "sleep": false, "sleep 1; true": false, "sleep 1 && curl x": false, "nosleep 1": false, "": false,
	} {
		if got := envdclient.OnlySleeps(command); got != want {
			t.Errorf("%q: got %v, want %v", command, got, want)
		}
	}
}

// TestCommands checks that only a command of the user reads the user's files.
func TestCommands(t *testing.T) {
	t.Parallel()
	got := []envdclient.Command{envdclient.Shell("true"), envdclient.Check("true")}
	want := []envdclient.Command{
		{Args: []string{"/bin/bash", "-l", "-c", "true"}},
		{Args: []string{"/bin/bash", "-p", "-c", "true"}, Envs: map[string]string{"PROC_ROOT": "/proc"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStart checks that the channel receives the outcome of a command.
func TestStart(t *testing.T) {
	t.Parallel()
	client, _, _ := serve(t)
	ended, err := client.Start(patience.Context(t), envdclient.Shell("exit 3"))
	must.Do(t, err)
	if exit, ok := errors.AsType[*envdclient.ExitError](<-ended); !ok || exit.Code != 3 {
		t.Errorf("got %v, want exit status 3", exit)
	}
}
