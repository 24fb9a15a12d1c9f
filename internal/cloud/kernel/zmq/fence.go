//go:build linux

package zmq

import (
	"crypto/rand"
	"encoding/json"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// fence asks for what is answered behind all that came before: kernels exist
// that say idle a moment before the last output.
func (l *Link) fence() (hidden bool, header jupyter.Header, err error) {
	return l.askHidden("kernel_info_request", struct{}{})
}

// denoEngine is how Deno's kernel calls itself. What its code prints is sent by
// a task of its own, which nothing else that it sends waits for: the output of a
// cell can come long after the answer, and under the name of a later request.
const denoEngine = "Deno kernel"

// markType is the type of the message that Deno's code sends as its last output.
const markType = "e2b_mark"

// askMark has Deno's kernel send a mark behind all that was printed.
func (l *Link) askMark(t *exchanges) (hidden bool, header jupyter.Header, err error) {
	t.mark = rand.Text()
	return l.askSilent(fmt.Sprintf("globalThis.Deno.jupyter.broadcast(%q, {mark: %q})", markType, t.mark))
}

func isMark(content json.RawMessage, mark string) bool {
	var m struct{ Mark string }
	return json.Unmarshal(content, &m) == nil && m.Mark == mark
}

// failed tells whether an answer is that of a request that failed.
func failed(answer json.RawMessage) bool {
	var reply struct{ Status string }
	return json.Unmarshal(answer, &reply) != nil || reply.Status != "ok"
}
