//go:build linux

// Package link defines the messages between a kernel and its process, for every
// transport: lines of JSON to our driver, ZeroMQ to the kernels of others.
package link

import (
	"encoding/json"
	"strings"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// MaxMessage bounds a message of a process. The driver keeps its own messages to
// half of this.
const MaxMessage = 64 << 20

// Link is a connection to a process. Its methods may be called concurrently.
type Link interface {
	Send(*Command) error
	// Receive passes the process's messages to take until the connection ends. The
	// error describes a breach of the protocol.
	Receive(take func(*Message) error) error
	// Ended tells the link that the process is gone. Then messages still in transit
	// are received, and sends no longer wait.
	Ended()
	Close()
}

// Message is a message of a process. It is not to be trusted: user code may have
// the same socket.
type Message struct {
	Type    string          `json:"type"`
	Content json.RawMessage `json:"content"`
	// ID is the request to which a reply belongs.
	ID uint64 `json:"id"`
	// Seq is the number of a sync or an input_request.
	Seq uint64 `json:"seq"`
	// Buffers are the binary parts, which only Jupyter's kernels have.
	Buffers [][]byte `json:"-"`
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
	Buffers [][]byte          `json:"-"` // for Jupyter's kernels
}

// Info is a process's description of itself, which it sends when it is ready.
type Info struct {
	// Python is the version of the interpreter.
	Python string `json:"python"`
	// Engine is "ipython" or "python", and Version its version.
	Engine  string `json:"engine"`
	Version string `json:"version"`
	// Note names missing features and the packages to install; it is empty with
	// IPython.
	Note string `json:"note"`
	// KernelInfo is a Jupyter kernel's own kernel_info_reply.
	KernelInfo json.RawMessage `json:"kernel_info,omitempty"`
}

// Reply returns the content of kernel_info_reply.
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

// Variables returns an environment as a map. If a name occurs twice, the last value
// wins.
func Variables(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return env
}
