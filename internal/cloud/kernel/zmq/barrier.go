//go:build linux

package zmq

import (
	"crypto/rand"
	"encoding/json"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// barrier sends a request that the kernel answers only after all earlier requests. It is needed
// because some kernels report idle just before the last output.
func (l *Link) barrier() (hidden bool, header jupyter.Header, err error) {
	return l.askHidden("kernel_info_request", struct{}{})
}

// denoEngine is the name that Deno's kernel reports. Deno's kernel sends the output of code in a
// separate task, and its other messages do not wait for this task. So the output of a cell can
// arrive long after the answer to the cell's request, and then has a later request as its parent.
const denoEngine = "Deno kernel"

// markType is the type of the message that code run in Deno sends as its last output.
const markType = "e2b_mark"

// askMark makes Deno's kernel send a mark after all output.
func (l *Link) askMark(t *exchanges) (hidden bool, header jupyter.Header, err error) {
	t.mark = rand.Text()
	return l.askSilent(fmt.Sprintf("globalThis.Deno.jupyter.broadcast(%q, {mark: %q})", markType, t.mark))
}

func isMark(content json.RawMessage, mark string) bool {
	var m struct{ Mark string }
	return json.Unmarshal(content, &m) == nil && m.Mark == mark
}

// failed reports whether an answer reports that a request failed.
func failed(answer json.RawMessage) bool {
	var reply struct{ Status string }
	return json.Unmarshal(answer, &reply) != nil || reply.Status != "ok"
}
