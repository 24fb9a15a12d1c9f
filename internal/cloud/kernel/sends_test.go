//go:build linux

package kernel

import (
	_ "embed"
	"net"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/must"
)

//go:embed testdata/sends.py
var sends string

// TestSends bounds how often the driver sends. Each send wakes envd, the server and the client. The
// result, or the error, and the reply of a cell are sent together, and so is text that was printed just before.
// Text is not kept until a slow cell ends.
func TestSends(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on this machine: the driver is not run")
	}
	cmd := exec.CommandContext(t.Context(), path, "-B", "-c", sends)
	cmd.Dir = "python" // the directory of the driver
	out, err := cmd.CombinedOutput()
	must.Do(t, err)
	want := `1+1: execute_input | execute_result,reply
pass: execute_input | reply
print('a'); 1+1: execute_input | stream,execute_result,reply
1/0: execute_input | error,reply
import time; print('a'); time.sleep(0.5); 1+1: execute_input | stream | execute_result,reply
`
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Errorf("sends (-want +got):\n%s", diff)
	}
}

// TestLinesTogether checks the notes on messages that arrived together: envd then looks for other
// output only once, and forwards a result with its reply.
func TestLinesTogether(t *testing.T) {
	t.Parallel()
	ours, theirs, err := child.SocketPair()
	must.Do(t, err)
	defer ours.Close()
	driver, err := net.FileConn(theirs)
	must.Do(t, err)
	must.Do(t, theirs.Close())
	const result, reply = `{"type":"execute_result","content":{}}` + "\n", `{"type":"reply","content":{}}` + "\n"
	// The last reply is not whole.
	_, err = driver.Write([]byte(result + reply + reply + result + reply[:len(reply)-1]))
	must.Do(t, err)
	must.Do(t, driver.Close())
	var got []link.Message
	_ = lines{ours}.Receive(func(m *link.Message) error {
		got = append(got, link.Message{Type: m.Type, Together: m.Together, Replied: m.Replied})
		return nil
	})
	want := []link.Message{
		{Type: "execute_result", Replied: true},
		{Type: "reply", Together: true, Replied: true},
		{Type: "reply", Together: true},
		{Type: "execute_result", Together: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}
