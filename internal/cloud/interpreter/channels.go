//go:build linux

package interpreter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

const (
	pingInterval = 30 * time.Second
	maxPings     = 3 // that may go unanswered
	maxMessage   = 64 << 20
	// patience is how long others wait for a client that does not read. One
	// that asked for what it gets slows its own execution as long as it likes.
	patience = 5 * time.Second
)

// The default CheckOrigin is what is wanted: an Origin must match Host, none is
// allowed.
var upgrader = websocket.Upgrader{Subprotocols: []string{jupyter.SubprotocolV1}}

var errProtocol = errors.New("not a Jupyter message")

// socket is one websocket to a kernel.
type socket struct {
	server *Server
	kernel *runningKernel
	// session is the session_id of the request, which may be empty. It only
	// replaces an older connection: nothing is kept while none is there.
	session string
	own     string // this end's session in headers
	conn    *websocket.Conn
	v1      bool
	client  *kernel.Client
	outbox  *outbox
	pings   atomic.Int32
	// ctx ends with the connection.
	ctx  context.Context //nolint:containedctx // the life of the connection, not of a call
	shut context.CancelFunc
}

func (s *Server) channels(w http.ResponseWriter, r *http.Request, k *runningKernel) {
	if !websocket.IsWebSocketUpgrade(r) {
		jupyterError(w, http.StatusBadRequest, `Can "Upgrade" only to "WebSocket".`)
		return
	}
	so := &socket{
		server: s, kernel: k, session: r.URL.Query().Get("session_id"), own: jupyter.NewID(),
		outbox: newOutbox(),
	}
	so.ctx, so.shut = context.WithCancel(s.ctx)
	defer so.shut()
	if !s.addSocket(so) {
		jupyterError(w, http.StatusServiceUnavailable, fmt.Sprintf("too many connections: the limit of a sandbox is %d", maxSockets))
		return
	}
	defer s.removeSocket(so)
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // the upgrader has answered
	}
	so.conn, so.v1 = conn, conn.Subprotocol() == jupyter.SubprotocolV1
	so.serve()
}

// addSocket also ends the connection that had the same session before.
func (s *Server) addSocket(so *socket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.sockets) >= maxSockets {
		return false
	}
	for o := range s.sockets {
		if so.session != "" && o.session == so.session && o.kernel == so.kernel {
			o.shut()
		}
	}
	s.sockets[so] = struct{}{}
	s.work.Add(1)
	return true
}

func (s *Server) removeSocket(so *socket) {
	s.mu.Lock()
	delete(s.sockets, so)
	s.mu.Unlock()
	s.work.Done()
}

func (so *socket) serve() {
	defer so.conn.Close()
	so.client = so.kernel.Attach(so.deliver)
	defer so.client.Close()
	// The process starts while the client gets ready to ask.
	so.server.background(so.kernel.startQuietly)
	var writer sync.WaitGroup
	writer.Go(so.write)
	defer writer.Wait()
	defer so.shut()
	so.conn.SetReadLimit(maxMessage)
	so.conn.SetPongHandler(func(string) error {
		so.pings.Store(0)
		return nil
	})
	for {
		kind, data, err := so.conn.ReadMessage()
		if err != nil {
			return
		}
		m, err := so.unmarshal(kind, data)
		if err == nil {
			err = so.take(m)
		}
		if err != nil {
			reason := websocket.FormatCloseMessage(websocket.CloseInvalidFramePayloadData, fmt.Sprintf("%.100v", err))
			_ = so.conn.WriteControl(websocket.CloseMessage, reason, time.Now().Add(time.Second))
			return
		}
	}
}

func (so *socket) unmarshal(kind int, data []byte) (*jupyter.Message, error) {
	if so.v1 && kind == websocket.BinaryMessage {
		return jupyter.UnmarshalV1(data)
	}
	return jupyter.Unmarshal(data, kind == websocket.BinaryMessage)
}

// write writes what is in the outbox, and pings. It closes the connection,
// which ends the reader too.
func (so *socket) write() {
	defer so.conn.Close()
	ticker := time.NewTicker(pingInterval)
	defer ticker.Stop()
	for {
		select {
		case <-so.ctx.Done():
			// What is on its way still goes, if it can go soon.
			_ = so.conn.SetWriteDeadline(time.Now().Add(time.Second))
			for len(so.outbox.frames) > 0 && so.put(<-so.outbox.frames) {
			}
			_ = so.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseGoingAway, ""), time.Now().Add(time.Second))
			return
		case f := <-so.outbox.frames:
			if !so.put(f) {
				so.shut()
				return
			}
		case <-ticker.C:
			if so.pings.Add(1) > maxPings {
				so.shut()
				return
			}
			_ = so.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))
		}
	}
}

func (so *socket) put(f frame) bool {
	defer so.outbox.taken(f)
	kind := websocket.TextMessage
	if f.binary {
		kind = websocket.BinaryMessage
	}
	return so.conn.WriteMessage(kind, f.data) == nil
}

// deliver is called by the kernel.
func (so *socket) deliver(ctx context.Context, e kernel.Event) {
	m := &jupyter.Message{
		Channel: e.Channel, Header: jupyter.NewHeader(e.Type, so.own, "username"), Content: e.Content,
	}
	asked := false
	if e.Request != nil {
		m.Parent = e.Request.Header
		asked = e.Request.By(so.client)
	}
	so.send(ctx, m, asked)
}

// send puts m into the outbox. A client that does not read waits with its own
// execution, but not with that of others.
func (so *socket) send(ctx context.Context, m *jupyter.Message, asked bool) {
	f, err := so.marshal(m)
	if err != nil {
		so.server.options.Logger.WarnContext(ctx, "message of a kernel", "type", m.Header.MsgType, "error", err)
		return
	}
	if so.outbox.tryPush(f) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(so.ctx, cancel)()
	if !asked {
		defer time.AfterFunc(patience, cancel).Stop()
	}
	if !so.outbox.push(ctx, f) {
		so.shut() // it has missed something: better no connection than a gap
	}
}

func (so *socket) marshal(m *jupyter.Message) (f frame, err error) {
	if so.v1 {
		f.binary = true
		f.data, err = jupyter.MarshalV1(m)
		return f, err
	}
	f.data, f.binary, err = jupyter.Marshal(m)
	return f, err
}

// take takes a message of the client.
func (so *socket) take(m *jupyter.Message) error {
	switch m.Channel {
	case jupyter.Shell:
		return so.takeShell(m)
	case jupyter.Control:
		return so.takeControl(m)
	case jupyter.Stdin:
		var reply jupyter.InputReply
		if err := json.Unmarshal(m.Content, &reply); err != nil {
			return fmt.Errorf("%w: %w", errProtocol, err)
		}
		return so.client.Answer(reply.Value)
	}
	return fmt.Errorf("%w: channel %.20q", errProtocol, m.Channel)
}

func (so *socket) takeShell(m *jupyter.Message) error {
	if m.Header.MsgID == "" || m.Header.MsgType == "" {
		return fmt.Errorf("%w: header without msg_id or msg_type", errProtocol)
	}
	r := &kernel.Request{Header: m.Header, Content: m.Content}
	if err := so.client.Submit(r); err != nil {
		so.refuse(m, err)
	}
	return nil
}

// refuse answers a request that the kernel did not take.
func (so *socket) refuse(m *jupyter.Message, err error) {
	ctx := so.ctx
	content, _ := json.Marshal(map[string]any{
		"status": "error", "ename": "KernelError", "evalue": err.Error(), "traceback": []string{err.Error()}, "execution_count": 0,
	})
	so.answer(ctx, m, content)
	idle, _ := json.Marshal(jupyter.StatusContent{ExecutionState: kernel.StateIdle})
	so.send(ctx, &jupyter.Message{
		Channel: jupyter.IOPub, Header: jupyter.NewHeader("status", so.own, "username"), Parent: m.Header, Content: idle,
	}, true)
}

// answer sends the reply to m on its channel.
func (so *socket) answer(ctx context.Context, m *jupyter.Message, content json.RawMessage) {
	header := jupyter.NewHeader(kernel.ReplyType(m.Header.MsgType), so.own, "username")
	so.send(ctx, &jupyter.Message{Channel: m.Channel, Header: header, Parent: m.Header, Content: content}, true)
}

func (so *socket) takeControl(m *jupyter.Message) error {
	ok := json.RawMessage(`{"status":"ok"}`)
	switch m.Header.MsgType {
	case "interrupt_request":
		so.kernel.Interrupt()
		so.answer(so.ctx, m, ok)
	case "shutdown_request":
		var content struct {
			Restart bool `json:"restart"`
		}
		if err := json.Unmarshal(m.Content, &content); err != nil {
			return fmt.Errorf("%w: %w", errProtocol, err)
		}
		reply, _ := json.Marshal(map[string]any{"status": "ok", "restart": content.Restart})
		so.answer(so.ctx, m, reply)
		so.server.background(func(ctx context.Context) {
			if content.Restart {
				_ = so.kernel.Restart(ctx)
			} else {
				so.server.removeKernel(so.kernel)
			}
		})
	case "kernel_info_request":
		so.server.background(func(ctx context.Context) {
			info, err := so.kernel.Start(ctx)
			if err != nil {
				so.refuse(m, err)
				return
			}
			so.answer(ctx, m, info.Reply())
		})
	default:
		// Such as debug_request: not served, and not worth a connection.
		so.refuse(m, fmt.Errorf("%.40q is not served on the control channel", m.Header.MsgType))
	}
	return nil
}
