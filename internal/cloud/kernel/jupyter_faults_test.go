//go:build linux

package kernel

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/kerneltest"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/zmq"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// Messages that ZeroMQ drops because nothing reads them are counted and reported.
func TestJupyterClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	k, _ := newJupyter(t, "python3")
	const displays = 3000
	read := make(chan struct{})
	s := &session{t: t, events: make(chan Event, 2*displays)}
	s.client = k.Attach(func(ctx context.Context, e Event) {
		if e.Type == "display_data" {
			select {
			case <-read:
			case <-ctx.Done():
			}
		}
		s.events <- e
	})
	t.Cleanup(s.client.Close)
	done := filepath.Join(t.TempDir(), "done")
	r := s.submit(fmt.Sprintf("for i in range(%d): display({'text/plain': 'x' * 8192}, raw=True)\nopen(%q, 'w').close()", displays, done))
	patience.Until(t, "the code has sent all it has", func() bool {
		_, err := os.Stat(done)
		return err == nil
	})
	close(read)
	o := s.wait(r)
	var lost int
	if _, err := fmt.Sscanf(o.stderr, "[%d messages of the kernel are missing", &lost); err != nil || len(o.results) == displays || len(o.results)+lost < displays {
		t.Errorf("%d results came, stderr %q", len(o.results), o.stderr)
	}
	if o := s.run("1 + 1"); o.text() != "2" || o.stderr != "" {
		t.Errorf("the next: %+v, want text %q and no stderr", o, "2")
	}
}

// A kernel that forgets the reply does not hold up the queue.
func TestJupyterKernelThatForgetsTheReply(t *testing.T) {
	t.Parallel()
	const program = `
from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel
class Forgetful(Kernel):
    implementation = banner = "forgetful"
    implementation_version = "0"
    language_info = {"name": "text", "mimetype": "text/plain", "file_extension": ".txt"}
    async def execute_request(self, stream, ident, parent):
        pass
IPKernelApp.launch_instance(kernel_class=Forgetful)`
	spec := &zmq.Spec{Name: "forgetful", Argv: []string{"python3", "-c", program, "-f", "{connection_file}"}, InterruptMode: "signal"}
	k, _ := newForeign(t, spec, kerneltest.Environ(t), func(s *Spec) { s.AnswerTimeout = 10 * time.Millisecond })
	s := attach(t, k)
	for range 2 {
		o := s.run("x")
		if o.reply.Status != "error" || o.reply.Name != "TimeoutError" {
			t.Errorf("got the reply %+v, want a TimeoutError", o.reply)
		}
		if len(o.errors) != 1 || o.errors[0].Name != "TimeoutError" {
			t.Errorf("got the errors %+v, want one TimeoutError", o.errors)
		}
	}
	r := &Request{Header: jupyter.NewHeader("kernel_info_request", "test", "test")}
	must.Do(t, s.client.Submit(r))
	s.wait(r)
}
