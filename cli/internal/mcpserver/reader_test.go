//go:build unix

package mcpserver

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// pipe and socket return outputs of a process: shells and most languages make pipes, Node makes sockets.
func pipe(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	must.Do(t, err)
	return reader, writer
}

func socket(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must.Do(t, err)
	return os.NewFile(uintptr(ends[0]), "reader"), os.NewFile(uintptr(ends[1]), "writer")
}

// A client that dies during a call ends its session at once. A script that
// closes its end of stdin, and reads on, gets the answer.
func TestClientThatDies(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.patience = 24 * time.Hour
	for name, open := range map[string]func(*testing.T) (reader, writer *os.File){"pipe": pipe, "socket": socket} {
		for _, dies := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				command := "echo answered"
				if dies {
					command = "sleep 600"
				}
				in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bash","arguments":{"command":"` + command + `"}}}
`)
				reader, writer := open(t)
				served := make(chan error, 1)
				go func() {
					served <- s.Serve(t.Context(), io.NopCloser(in), writer)
					writer.Close()
				}()
				answers := bufio.NewReader(reader)
				_, err := answers.ReadString('\n') // to initialize
				must.Do(t, err)
				if dies {
					must.Do(t, reader.Close())
				} else {
					answer, err := answers.ReadString('\n')
					must.Do(t, err)
					if !strings.Contains(answer, "answered") {
						t.Errorf("got %q, want the answer", answer)
					}
				}
				_ = patience.Receive(t, "the session ends", served) // with an error if it wrote to a closed pipe
				reader.Close()
			})
		}
	}
}
