//go:build linux

package kernel

import (
	"encoding/json"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// ReplyType is the msg_type that answers a request.
func ReplyType(msgType string) string { return strings.TrimSuffix(msgType, "_request") + "_reply" }

// answer is the reply to a request that needs no process, nil for all others.
func (k *Kernel) answer(msgType string, info link.Info) json.RawMessage {
	switch {
	case msgType == "kernel_info_request":
		return info.Reply()
	case k.spec.Jupyter != nil:
		return nil
	case msgType == "comm_info_request":
		return json.RawMessage(`{"status":"ok","comms":{}}`)
	case !strings.HasSuffix(msgType, "_request"):
		// Comms have no reply; one is harmless to who does not wait for it.
		return json.RawMessage(`{"status":"ok"}`)
	}
	return nil
}

// refuseComm is the comm_close that answers a comm_open: no target is known here.
func refuseComm(open json.RawMessage) json.RawMessage {
	var comm struct {
		ID string `json:"comm_id"`
	}
	_ = json.Unmarshal(open, &comm) // an id that is no text names no comm
	return jupyter.Encode(map[string]any{"comm_id": comm.ID, "data": map[string]any{}})
}
