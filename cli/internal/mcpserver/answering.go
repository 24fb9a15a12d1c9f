package mcpserver

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// answerPatience limits the time in which calls may still be answered after the end of the input.
const answerPatience = 30 * time.Second

// answering is a transport that delays the report of the end of its input. It reports the end when
// all calls are answered, nobody can read the answers, or the time in patience has passed. The
// library cancels open calls at the end of the input, but a script may pipe its calls in and wait
// for the answers.
type answering struct {
	sdk.Transport
	out      io.Writer // receives the answers
	patience time.Duration
}

// Connect implements [sdk.Transport].
func (a *answering) Connect(ctx context.Context) (sdk.Connection, error) {
	conn, err := a.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &answeringConn{Connection: conn, out: a.out, patience: a.patience, open: map[string]bool{}, closed: make(chan struct{})}, nil
}

type answeringConn struct {
	sdk.Connection
	out      io.Writer
	patience time.Duration

	mu     sync.Mutex
	open   map[string]bool // the ids of calls without an answer
	ended  chan struct{}   // made at the end of the input, and nil before; closed when open is empty
	once   sync.Once
	closed chan struct{}
}

// Read implements [sdk.Connection].
func (c *answeringConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	message, err := c.Connection.Read(ctx)
	if err != nil {
		c.drain(ctx)
		return nil, err
	}
	if request, ok := message.(*jsonrpc.Request); ok {
		c.mu.Lock()
		if request.IsCall() {
			c.open[idText(request.ID)] = true
		} else if request.Method == "notifications/cancelled" {
			delete(c.open, cancelledID(request.Params))
		}
		c.mu.Unlock()
	}
	return message, nil
}

// Write implements [sdk.Connection].
func (c *answeringConn) Write(ctx context.Context, message jsonrpc.Message) error {
	err := c.Connection.Write(ctx, message)
	if response, ok := message.(*jsonrpc.Response); ok {
		c.mu.Lock()
		delete(c.open, idText(response.ID))
		if c.ended != nil && len(c.open) == 0 {
			close(c.ended)
			c.ended = nil
		}
		c.mu.Unlock()
	}
	if err != nil {
		c.stop() // nobody reads: there is nothing to wait for
	}
	return err
}

// Close implements [sdk.Connection].
func (c *answeringConn) Close() error {
	c.stop()
	return c.Connection.Close()
}

func (c *answeringConn) stop() { c.once.Do(func() { close(c.closed) }) }

// drain waits until all calls are answered, or nobody can read the answers.
func (c *answeringConn) drain(ctx context.Context) {
	c.mu.Lock()
	if len(c.open) == 0 {
		c.mu.Unlock()
		return
	}
	answered := make(chan struct{})
	c.ended = answered
	c.mu.Unlock()
	stop := cmdutil.WatchReader(c.out, c.stop)
	defer stop()
	patience := time.NewTimer(c.patience)
	defer patience.Stop()
	select {
	case <-answered:
	case <-patience.C:
	case <-c.closed:
	case <-ctx.Done():
	}
}

func idText(id jsonrpc.ID) string {
	text, _ := json.Marshal(id.Raw()) // a number or a string
	return string(text)
}

// cancelledID returns the id of the call that a notification cancels.
func cancelledID(params json.RawMessage) string {
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	_ = json.Unmarshal(params, &p) // without an id it cancels nothing
	return string(p.RequestID)
}
