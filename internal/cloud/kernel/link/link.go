//go:build linux

// Package link defines the messages between a kernel and its process. The messages are the same for
// both transports: lines of JSON to the driver, and ZeroMQ to Jupyter kernels.
package link

import (
	"encoding/json"
	"strings"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// MaxMessage bounds the bytes of a message from a process. The driver limits its messages to half of
// MaxMessage.
const MaxMessage = 64 << 20

// Link is a connection to a process. Its methods are safe for concurrent use.
type Link interface {
	Send(*Command) error
	// Receive passes the messages of the process to take until the connection ends. It returns
	// an error if the process violates the protocol.
	Receive(take func(*Message) error) error
	// Ended informs the link that the process has ended. The link then still receives the messages in
	// transit. Calls that send a message no longer block.
	Ended()
	Close()
}

// Message is a message from a process. It is untrusted, because user code may use the same
// socket.
type Message struct {
	Type    string          `json:"type"`
	Content json.RawMessage `json:"content"`
	// ID is the request to which a reply belongs.
	ID uint64 `json:"id"`
	// Seq is the number of a sync or an input_request.
	Seq uint64 `json:"seq"`
	// Buffers are the binary parts of the message. Only messages of Jupyter kernels have Buffers.
	Buffers [][]byte `json:"-"`
	// Together means that the message arrived together with the message before it. So both were sent
	// before the first of them was received.
	Together bool `json:"-"`
	// Replied means that the reply to the request has already arrived, and is the next message.
	Replied bool `json:"-"`
}

// Command is a message to a process.
type Command struct {
	Type    string            `json:"type"`
	Content json.RawMessage   `json:"content,omitempty"`
	ID      uint64            `json:"id,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Seq     uint64            `json:"seq,omitempty"`
	Value   string            `json:"value"`
	EOF     bool              `json:"eof,omitempty"`
	Buffers [][]byte          `json:"-"` // binary parts of the message; only for Jupyter kernels
}

// Info describes a process. The process sends its Info when it is ready.
type Info struct {
	// Python is the version of the interpreter.
	Python string `json:"python"`
	// Engine is "ipython" or "python". Version is the version of the engine.
	Engine  string `json:"engine"`
	Version string `json:"version"`
	// Note names missing features, and the packages to install for them. With IPython, Note is "".
	Note string `json:"note"`
	// KernelInfo is the kernel_info_reply of a Jupyter kernel.
	KernelInfo json.RawMessage `json:"kernel_info,omitempty"`
}

// Reply returns the content of the kernel_info_reply.
func (i Info) Reply() json.RawMessage {
	if i.KernelInfo != nil {
		return i.KernelInfo
	}
	banner := "Python " + i.Python
	if i.Engine == "ipython" {
		banner += " | IPython " + i.Version
	}
	if i.Note != "" {
		banner += "\n" + i.Note
	}
	return jupyter.Encode(map[string]any{
		"status":                 "ok",
		"protocol_version":       jupyter.ProtocolVersion,
		"implementation":         i.Engine,
		"implementation_version": i.Version,
		"language_info": map[string]any{
			"name": "python", "version": i.Python, "mimetype": "text/x-python", "file_extension": ".py",
			"pygments_lexer": "ipython3", "nbconvert_exporter": "python",
			"codemirror_mode": map[string]any{"name": "ipython", "version": 3},
		},
		"banner":     banner,
		"debugger":   false,
		"help_links": []any{},
	})
}

// Variables converts an environment to a map. If a name occurs twice, the map has the last
// value.
func Variables(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return env
}
