//go:build linux

package cloud

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// limitVariable names an environment variable. If it is set, TestIdleConnections acts as the
// server, and its value is the maximum number of files that this server may open.
const limitVariable = "E2BCTL_TEST_OPEN_FILES"

// serveWithFewFiles runs the server of TestIdleConnections, in a separate process.
func serveWithFewFiles(t *testing.T, text string) {
	t.Helper()
	limit, err := strconv.ParseUint(text, 10, 64)
	must.Do(t, err)
	must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}))
	c, fake := startFake(t, Options{})
	id := create(t, c, `{"templateID":"base"}`)
	fake.boxes[id].daemon.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/echo" {
			_ = http.NewResponseController(w).EnableFullDuplex()
			_, _ = io.Copy(flushing{w}, r.Body)
			return
		}
		_, _ = io.WriteString(w, "hello")
	})
	fmt.Fprintf(os.Stdout, "serving %s %s %s\n", strings.TrimPrefix(c.URL(), "http://"), c.Key(), id)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
}

type flushing struct{ http.ResponseWriter }

func (w flushing) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	if err == nil {
		err = http.NewResponseController(w.ResponseWriter).Flush()
	}
	return n, err
}

// TestIdleConnections checks that the server answers other clients, and that connections in use
// stay open, for any number of idle connections of a client without a key.
func TestIdleConnections(t *testing.T) {
	if text := os.Getenv(limitVariable); text != "" {
		serveWithFewFiles(t, text)
		return
	}
	t.Parallel()
	const files = 120
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestIdleConnections$", "-test.v")
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d", limitVariable, files))
	var errors strings.Builder
	command.Stderr = &errors
	stdin, err := command.StdinPipe()
	must.Do(t, err)
	stdout, err := command.StdoutPipe()
	must.Do(t, err)
	must.Do(t, command.Start())
	said := bufio.NewReader(stdout)
	defer func() {
		_ = stdin.Close()
		rest, _ := io.ReadAll(said)
		if err := command.Wait(); err != nil {
			t.Errorf("the server: %v, %s %s", err, rest, errors.String())
		}
	}()
	var address, key, id string
	for address == "" {
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatal(err, errors.String())
		}
		_, _ = fmt.Sscanf(line, "serving %s %s %s", &address, &key, &id)
	}
	dial := func() net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		must.Do(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(patience.Deadline())
		return conn
	}
	answered := func(conn net.Conn, in *bufio.Reader, request, want string) {
		t.Helper()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(in, nil)
		must.Do(t, err)
		defer response.Body.Close()
		if text, err := io.ReadAll(response.Body); err != nil || string(text) != want || response.StatusCode != http.StatusOK {
			t.Fatalf("%s %q, %v; want %q", response.Status, text, err, want)
		}
	}
	toSandbox := "Host: 49983-" + id + ".localhost\r\n"

	// A connection that is in use: a conversation.
	stream := dial()
	fmt.Fprintf(stream, "POST /echo HTTP/1.1\r\n%sTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n", toSandbox)
	fromStream := bufio.NewReader(stream)
	heard := func(want string) {
		t.Helper()
		for {
			line, err := fromStream.ReadString('\n')
			if err != nil {
				t.Fatalf("the conversation, before %q: %v", want, err)
			}
			if line == want+"\r\n" {
				return
			}
		}
	}
	heard("one")

	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: ",                                                    // half a request head
		"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",                             // idle after a request
		"POST /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", // refused while its body is still awaited
		http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00",                  // with settings
	} {
		for range files {
			_, err := io.WriteString(dial(), text)
			must.Do(t, err)
		}
		conn := dial()
		in := bufio.NewReader(conn)
		answered(conn, in, "GET /health HTTP/1.1\r\n"+toSandbox+"\r\n", "hello")
		answered(conn, in, "GET /v2/sandboxes?state=paused HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: "+key+"\r\n\r\n", "[]")
	}
	fmt.Fprint(stream, "3\r\ntwo\r\n0\r\n\r\n")
	heard("two")
}
