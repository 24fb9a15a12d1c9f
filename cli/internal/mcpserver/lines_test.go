package mcpserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

const ping = `{"jsonrpc":"2.0","id":7,"method":"ping"}`

// checked returns the lines of a client that the library reads, and the answers to those that are no messages.
func checked(t *testing.T, lines string) (messages, answers string) {
	t.Helper()
	var out strings.Builder
	content, err := io.ReadAll(&checkedLines{in: bufio.NewReaderSize(iotest.HalfReader(strings.NewReader(lines)), 16), out: &out})
	must.Do(t, err)
	return string(content), out.String()
}

// A line that is no message has an answer, and the messages around it are read as they are.
func TestLinesThatAreNoMessages(t *testing.T) {
	t.Parallel()
	for line, wrong := range map[string]bool{
		ping: false, "[" + ping + "," + ping + "]": false, "": false, "  \t": false,
		"garbage": true, "[]": true, "[1]": true, "null": true, "{": true, `{"jsonrpc":"2.0"}`: true, `{"jsonrpc":"2.0","id":7,"method":7}`: true,
		"\ufeff" + ping: true, strings.Repeat("x", sdk.DefaultMaxLineLength+100): true,
	} {
		messages, answers := checked(t, ping+"\n"+line+"\n"+ping)
		want := ping + "\n" + line + "\n" + ping
		if wrong || strings.TrimSpace(line) == "" {
			want = ping + "\n" + ping
		}
		if messages != want || strings.Contains(answers, `"code":-32700`) != wrong || strings.Count(answers, "\n") > 1 {
			t.Errorf("%.40q: got the messages %.200q and the answers %.200q, want an answer: %v", line, messages, answers, wrong)
		}
	}
}

// A session outlives a line that is no message, with its sandbox.
func TestSessionOutlivesGarbage(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
this is no message
{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"bash","arguments":{"command":"echo still here"}}}
`)
	var out strings.Builder
	must.Do(t, s.Serve(t.Context(), io.NopCloser(in), nopWriteCloser{&out}))
	if got := out.String(); !strings.Contains(got, `"code":-32700`) || !strings.Contains(got, "still here") {
		t.Errorf("got %q, want an error for the line and the answer to the call", got)
	}
}

// A server that is stopped ends the calls under way at once, and then its sandboxes.
func TestStoppedDuringACall(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	lister, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, lister.Close()) })
	s := serveFrom(t, cloud, nil)
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- s.Serve(ctx, in, out)
		out.Close()
	}()
	c := connected(t, versions[0], nil, &sdk.IOTransport{Reader: fromServer, Writer: toServer})
	c.works(t, "bash", args{"command": "ls"})
	go func() {
		_, _ = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "bash", Arguments: args{"command": "touch begun; sleep 600"}})
	}()
	c.works(t, "run_python", args{"code": "import os, time\nwhile not os.path.exists('begun'): time.sleep(0.01)"})
	stop()
	must.Is(t, patience.Receive(t, "the server stops", served), context.Canceled)
	must.Do(t, s.Close())
	if n := count(t, lister); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	_ = c.Close() // the server ended the connection
}

func FuzzLines(f *testing.F) {
	f.Add("garbage\n[]\n" + ping)
	f.Fuzz(func(t *testing.T, lines string) {
		messages, _ := checked(t, lines)
		for line := range strings.Lines(messages) {
			if err := checkLine([]byte(line)); err != nil {
				t.Errorf("%q was let through: %v", line, err)
			}
		}
	})
}

// TestLongestLine checks the length of the longest line, with the side that is allowed.
func TestLongestLine(t *testing.T) {
	t.Parallel()
	for beyond, wrong := range map[int]bool{0: false, 1: true} {
		line := []byte(strings.Repeat(" ", sdk.DefaultMaxLineLength-len(ping)+beyond) + ping)
		if err := checkLine(line); (err != nil) != wrong || wrong && !strings.Contains(err.Error(), "the line has more than 16 MiB") {
			t.Errorf("%d bytes beyond the bound: got error %v", beyond, err)
		}
	}
	broken := errors.New("nobody reads")
	in := &checkedLines{in: bufio.NewReader(strings.NewReader("garbage\n" + ping)), out: failingWriter{broken}}
	if n, err := in.Read(make([]byte, 100)); n != 0 || !errors.Is(err, broken) {
		t.Errorf("an answer that cannot be sent: got %d bytes and error %v, want %v", n, err, broken)
	}
	in = &checkedLines{in: bufio.NewReader(io.MultiReader(strings.NewReader(ping), iotest.ErrReader(broken)))}
	if text, err := io.ReadAll(in); string(text) != ping || !errors.Is(err, broken) {
		t.Errorf("a broken input: got %q and error %v, want the line and %v", text, err, broken)
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }
