// Package jupytertest simulates the server's end of a kernel's websocket, for tests of
// clients.
package jupytertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Kernel is the server's end of one websocket.
type Kernel struct {
	Socket *websocket.Conn
	t      testing.TB
}

// Upgrade upgrades a request to a websocket. The caller closes its socket.
func Upgrade(t testing.TB, w http.ResponseWriter, r *http.Request) (*Kernel, error) {
	upgrader := websocket.Upgrader{Subprotocols: []string{jupyter.SubprotocolV1}}
	socket, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil, err
	}
	return &Kernel{socket, t}, nil
}

// Answering returns a function that serves a kernel. It calls f with every request to execute code.
func Answering(f func(k *Kernel, m *jupyter.Message)) func(*Kernel) {
	return func(k *Kernel) {
		for m := k.Next(); m != nil; m = k.Next() {
			if m.Header.MsgType == "execute_request" {
				f(k, m)
			}
		}
	}
}

// Code returns the code in an execute request.
func Code(m *jupyter.Message) string {
	var r jupyter.ExecuteRequest
	_ = json.Unmarshal(m.Content, &r)
	return r.Code
}

// Next reads a message. It returns nil at the end of the connection.
func (k *Kernel) Next() *jupyter.Message {
	_, frame, err := k.Socket.ReadMessage()
	if err != nil {
		return nil
	}
	m, err := jupyter.UnmarshalV1(frame)
	if err != nil {
		k.t.Error(err)
		return nil
	}
	return m
}

// Say sends a message in answer to parent. If parent is nil, the message answers no request.
func (k *Kernel) Say(parent *jupyter.Message, channel, kind string, content any) {
	data, err := json.Marshal(content)
	if err != nil {
		k.t.Error(err)
	}
	m := &jupyter.Message{Channel: channel, Header: jupyter.NewHeader(kind, "server", "k"), Content: data}
	if parent != nil {
		m.Parent = parent.Header
	}
	frame, err := jupyter.MarshalV1(m)
	if err != nil {
		k.t.Error(err)
	}
	_ = k.Socket.WriteMessage(websocket.BinaryMessage, frame) // the client may be gone
}

// Begin reports that the code of a request begins to run.
func (k *Kernel) Begin(parent *jupyter.Message) {
	k.Status(parent, "busy")
	k.Say(parent, jupyter.IOPub, "execute_input", jupyter.ExecuteInput{Code: "x", ExecutionCount: 7})
}

// Status reports the state of the kernel.
func (k *Kernel) Status(parent *jupyter.Message, state string) {
	k.Say(parent, jupyter.IOPub, "status", jupyter.StatusContent{ExecutionState: state})
}

// Stream sends output of the code.
func (k *Kernel) Stream(parent *jupyter.Message, name, text string) {
	k.Say(parent, jupyter.IOPub, "stream", jupyter.StreamContent{Name: name, Text: text})
}

// Reply answers a request to execute code.
func (k *Kernel) Reply(parent *jupyter.Message, status string) {
	k.Say(parent, jupyter.Shell, "execute_reply", map[string]any{"status": status, "execution_count": 7})
}

// Ask sends a request for input, as if the code of the request parent asked for input.
func (k *Kernel) Ask(parent *jupyter.Message, prompt string) {
	k.Say(parent, jupyter.Stdin, "input_request", jupyter.InputRequest{Prompt: prompt})
}

// Answer reads the value of an input_reply.
func (k *Kernel) Answer() string {
	m := k.Next()
	var reply jupyter.InputReply
	if m == nil || m.Header.MsgType != "input_reply" || json.Unmarshal(m.Content, &reply) != nil {
		return fmt.Sprintf("%+v", m)
	}
	return reply.Value
}
