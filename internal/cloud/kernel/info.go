//go:build linux

package kernel

import (
	"encoding/json"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// ReplyType returns the msg_type of the reply to a request.
func ReplyType(msgType string) string { return strings.TrimSuffix(msgType, "_request") + "_reply" }

// answer returns the reply to a request that can be answered without the process. For any other
// request, answer returns nil.
func (k *Kernel) answer(msgType string, info link.Info) json.RawMessage {
	switch {
	case msgType == "kernel_info_request":
		return info.Reply()
	case k.spec.Jupyter != nil:
		return nil
	case msgType == "comm_info_request":
		return json.RawMessage(`{"status":"ok","comms":{}}`)
	case !strings.HasSuffix(msgType, "_request"):
		// Messages of comms have no reply. A reply does not disturb a client that does not wait
		// for one.
		return json.RawMessage(`{"status":"ok"}`)
	}
	return nil
}

// refuseComm returns the content of the comm_close that answers a comm_open. Every comm_open is
// refused, because this kernel has no comm targets.
func refuseComm(open json.RawMessage) json.RawMessage {
	var comm struct {
		ID string `json:"comm_id"`
	}
	_ = json.Unmarshal(open, &comm) // an id that is not a string names no comm
	return jupyter.Encode(map[string]any{"comm_id": comm.ID, "data": map[string]any{}})
}
