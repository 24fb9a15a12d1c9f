//go:build linux

package interpreter

import (
	"context"
	"encoding/binary"
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
	maxPings     = 3 // maximum number of unanswered pings
	maxMessage   = 64 << 20
	// unconfirmed bounds the bytes that the server sends before it requests an acknowledgement from
	// the client.
	unconfirmed = 256 << 10
	// confirmAfter bounds the time until the server requests an acknowledgement. So a client that
	// runs many short cells is not asked after each message.
	confirmAfter = 50 * time.Millisecond
	// farewell bounds the time for messages in transit when a connection ends.
	farewell = time.Second
)

// The origin need not be checked, because the caller is already authorized.
var upgrader = websocket.Upgrader{
	Subprotocols: []string{jupyter.SubprotocolV1}, CheckOrigin: func(*http.Request) bool { return true },
}

var errProtocol = errors.New("not a Jupyter message")

// socket is a websocket to a kernel.
type socket struct {
	server  *Server
	kernel  *runningKernel
	session string // session_id of the request; may be empty
	number  uint64 // number of the request; later requests have higher numbers
	conn    *websocket.Conn
	writes  *gathered // the connection below conn
	v1      bool
	buffer  *sessionBuffer
	pings   atomic.Int32
	lost    atomic.Bool   // the client has missed a message
	done    chan struct{} // closed when the buffer is free for the next connection
	// ctx ends with the connection.
	ctx  context.Context //nolint:containedctx // the life of the connection, not of a call
	shut context.CancelFunc
}

func (s *Server) channels(w http.ResponseWriter, r *http.Request, k *runningKernel) {
	if !websocket.IsWebSocketUpgrade(r) {
		jupyterError(w, http.StatusBadRequest, `Can "Upgrade" only to "WebSocket".`)
		return
	}
	so := &socket{server: s, kernel: k, session: r.URL.Query().Get("session_id"), done: make(chan struct{})}
	so.ctx, so.shut = context.WithCancel(s.ctx)
	defer so.shut()
	if len(so.session) > maxSessionID {
		jupyterError(w, http.StatusBadRequest, fmt.Sprintf("session_id is longer than %d bytes", maxSessionID))
		return
	}
	if !s.addSocket(so) {
		jupyterError(w, http.StatusServiceUnavailable, fmt.Sprintf("too many connections: the limit of a sandbox is %d", maxSockets))
		return
	}
	defer s.removeSocket(so)
	hijacked := &gathering{ResponseWriter: w}
	conn, err := upgrader.Upgrade(hijacked, r, nil)
	if err != nil {
		return // the upgrader has already answered
	}
	defer conn.Close()
	so.conn, so.writes, so.v1 = conn, hijacked.conn, conn.Subprotocol() == jupyter.SubprotocolV1
	if so.buffer, err = s.openBuffer(so); err != nil {
		code := websocket.CloseTryAgainLater
		if errors.Is(err, errReplaced) || errors.Is(err, errRemoved) {
			code = websocket.CloseGoingAway
		}
		so.sayBye(code, err.Error())
		return
	}
	defer close(so.done)
	defer so.buffer.detach()
	so.serve()
}

// maxSessionID bounds the length of a session_id. Clients use much shorter ones.
const maxSessionID = 1 << 10

func (s *Server) addSocket(so *socket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.sockets) >= maxSockets {
		return false
	}
	s.sockets[so] = struct{}{}
	s.requests++
	so.number = s.requests
	s.work.Add(1)
	return true
}

func (s *Server) removeSocket(so *socket) {
	s.mu.Lock()
	delete(s.sockets, so)
	s.mu.Unlock()
	s.work.Done()
}

// connections returns the number of websockets to a kernel.
func (s *Server) connections(k *runningKernel) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for so := range s.sockets {
		if so.kernel == k {
			n++
		}
	}
	return n
}

func (so *socket) serve() {
	// Start the process while the client prepares its first request.
	so.server.background(so.kernel.startQuietly)
	var writer sync.WaitGroup
	writer.Go(so.write)
	defer writer.Wait()
	defer so.shut()
	so.conn.SetReadLimit(maxMessage)
	so.conn.SetPongHandler(func(payload string) error {
		so.pings.Store(0)
		if len(payload) == 8 {
			so.buffer.acknowledge(binary.BigEndian.Uint64([]byte(payload)))
		}
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
			so.sayBye(websocket.CloseInvalidFramePayloadData, fmt.Sprintf("%.100v", err))
			return
		}
	}
}

func (so *socket) sayBye(code int, reason string) {
	_ = so.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(farewell))
}

func (so *socket) unmarshal(kind int, data []byte) (*jupyter.Message, error) {
	if so.v1 && kind == websocket.BinaryMessage {
		return jupyter.UnmarshalV1(data)
	}
	return jupyter.Unmarshal(data, kind == websocket.BinaryMessage)
}

// write sends the messages in the buffer, and pings. At the end it closes the connection, which
// also ends the reader.
func (so *socket) write() {
	defer so.conn.Close()
	defer so.shut()
	// This also ends a write that blocks.
	defer context.AfterFunc(so.ctx, func() { time.AfterFunc(farewell, func() { so.conn.NetConn().Close() }) })()
	ticker := time.NewTicker(so.server.ping)
	defer ticker.Stop()
	var asked uint64 // position of the last ping that asks for an acknowledgement
	size := 0        // bytes sent since that ping
	confirm := time.NewTimer(confirmAfter)
	defer confirm.Stop()
	due, armed := false, true // whether confirm has fired, or will fire
	for {
		m := so.buffer.next()
		if m != nil {
			so.writes.keep()
			n, err := so.put(m)
			if err != nil {
				return
			}
			size += n
		}
		if position, pending := so.buffer.position(); so.session == "" {
			so.buffer.acknowledge(position)
		} else if pending && position > asked {
			switch {
			case due && m == nil || size > unconfirmed:
				asked, size, due = position, 0, false
				// Without a deadline: a client that reads slowly stays connected.
				_ = so.conn.WriteControl(websocket.PingMessage, binary.BigEndian.AppendUint64(nil, position), time.Time{})
			case !armed:
				armed = true
				confirm.Reset(confirmAfter)
			}
		}
		if m != nil {
			continue
		}
		if so.writes.release() != nil {
			return
		}
		select {
		case <-so.ctx.Done():
			so.end()
			return
		case <-so.buffer.wake:
		case <-confirm.C:
			due, armed = true, false
		case <-ticker.C:
			if so.pings.Add(1) > maxPings {
				return
			}
			_ = so.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(farewell))
		}
	}
}

// end sends the messages in transit, and closes the connection with a close message.
func (so *socket) end() {
	for m := so.buffer.next(); m != nil; m = so.buffer.next() {
		if _, err := so.put(m); err != nil {
			return
		}
	}
	if so.lost.Load() {
		so.sayBye(websocket.ClosePolicyViolation, "too slow: messages were lost")
		return
	}
	so.sayBye(websocket.CloseGoingAway, "")
}

// put writes one message, and returns the size of the message.
func (so *socket) put(m *jupyter.Message) (int, error) {
	kind, data, isBinary := websocket.TextMessage, []byte(nil), so.v1
	var err error
	if so.v1 {
		data, err = jupyter.MarshalV1(m)
	} else {
		data, isBinary, err = jupyter.Marshal(m)
	}
	if err != nil { // happens only if a kernel writes malformed JSON
		so.server.options.Logger.WarnContext(so.ctx, "encode a message of a kernel", "type", m.Header.MsgType, "error", err)
		return 0, nil
	}
	if isBinary {
		kind = websocket.BinaryMessage
	}
	return len(data), so.conn.WriteMessage(kind, data)
}

// take handles a message from the client.
func (so *socket) take(m *jupyter.Message) error {
	switch m.Channel {
	case jupyter.Shell:
		return so.takeShell(m)
	case jupyter.Control:
		return so.takeControl(m)
	case jupyter.Stdin:
		return so.takeStdin(m)
	}
	return fmt.Errorf("%w: channel %.20q", errProtocol, m.Channel)
}

func (so *socket) takeShell(m *jupyter.Message) error {
	if m.Header.MsgID == "" || m.Header.MsgType == "" {
		return fmt.Errorf("%w: header without msg_id or msg_type", errProtocol)
	}
	r := &kernel.Request{Header: m.Header, Content: m.Content, Buffers: m.Buffers}
	if err := so.buffer.client.Submit(r); err != nil {
		so.status(m, jupyter.StateBusy)
		so.refuse(m, err)
	}
	return nil
}

// takeStdin handles the answer to a question. It ignores an answer to an earlier question. Such an
// answer is late, or the client sent it again because the client could not know whether it had
// arrived.
func (so *socket) takeStdin(m *jupyter.Message) error {
	var reply jupyter.InputReply
	if err := json.Unmarshal(m.Content, &reply); err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	if so.buffer.asksNoMore(m.Parent.MsgID) {
		return nil
	}
	return so.buffer.client.Answer(reply.Value)
}

// refuse answers a request that is not supported.
func (so *socket) refuse(m *jupyter.Message, err error) {
	content, _ := json.Marshal(map[string]any{
		"status": "error", "ename": "KernelError", "evalue": err.Error(), "traceback": []string{err.Error()}, "execution_count": 0,
	})
	so.answer(m, content)
}

// answer sends the reply to m on the channel of m, and the status idle, because clients wait
// for both.
func (so *socket) answer(m *jupyter.Message, content json.RawMessage) {
	header := jupyter.NewHeader(kernel.ReplyType(m.Header.MsgType), so.buffer.own, "username")
	so.buffer.answer(&jupyter.Message{Channel: m.Channel, Header: header, Parent: m.Header, Content: content})
	so.status(m, jupyter.StateIdle)
}

func (so *socket) status(m *jupyter.Message, state string) {
	content, _ := json.Marshal(jupyter.StatusContent{ExecutionState: state})
	so.buffer.answer(&jupyter.Message{
		Channel: jupyter.IOPub, Header: jupyter.NewHeader("status", so.buffer.own, "username"), Parent: m.Header, Content: content,
	})
}

func (so *socket) takeControl(m *jupyter.Message) error {
	ok := json.RawMessage(`{"status":"ok"}`)
	so.status(m, jupyter.StateBusy)
	switch m.Header.MsgType {
	case "interrupt_request":
		so.kernel.Interrupt()
		so.answer(m, ok)
	case "shutdown_request":
		var content struct {
			Restart bool `json:"restart"`
		}
		if err := json.Unmarshal(m.Content, &content); err != nil {
			return fmt.Errorf("%w: %w", errProtocol, err)
		}
		reply, _ := json.Marshal(map[string]any{"status": "ok", "restart": content.Restart})
		so.answer(m, reply)
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
			so.answer(m, info.Reply())
		})
	default:
		// A request such as debug_request is not supported, but is no reason to end the
		// connection.
		so.refuse(m, fmt.Errorf("%.40q is not served on the control channel", m.Header.MsgType))
	}
	return nil
}
