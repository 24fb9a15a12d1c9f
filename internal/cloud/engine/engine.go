// Package engine says what an engine is: it isolates sandboxes and carries the
// connections to and from them. Package room is the only one so far.
package engine

import (
	"context"
	"encoding/json"
	"net"
)

// Engine runs sandboxes. It is safe for concurrent use.
type Engine interface {
	// NewSandbox starts a sandbox and returns when it can be used. ctx bounds only
	// the start.
	NewSandbox(ctx context.Context, o SandboxOptions) (Sandbox, error)
	// Report describes what the machine provides.
	Report() Report
	// Done returns a channel that is closed when the engine has ended.
	Done() <-chan struct{}
	// Close ends all sandboxes and the engine.
	Close() error
}

// Sandbox is a running sandbox. It is safe for concurrent use.
type Sandbox interface {
	// Done returns a channel that is closed when the sandbox has ended.
	Done() <-chan struct{}
	// Err returns why it ended, and nil before its end.
	Err() error
	// Close ends it.
	Close() error
	// Dial connects to a port inside. Its errors include [ErrPortClosed], [ErrGone]
	// and [ErrTooMany].
	Dial(ctx context.Context, port int) (net.Conn, error)
	// SetEgress changes the egress of a sandbox that was started with one.
	// Connections through the old one are cut off.
	SetEgress(e Egress)
}

// SandboxOptions configure [Engine.NewSandbox].
type SandboxOptions struct {
	// ID is the sandbox's name and hostname: letters, digits and hyphens, at most
	// 63 characters.
	ID     string
	Limits Limits
	// Config is passed to envd unchanged; at most 1 MiB of JSON.
	Config json.RawMessage
	// Egress connects the sandbox to the outside; nil means that there is no egress
	// path, and that none can be set later.
	Egress Egress
}
