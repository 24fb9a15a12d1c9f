//go:build linux

package interpreter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// cut ends the connection without a close message, like a network failure.
func (p *peer) cut() { _ = p.ws.CloseNow() }

// text returns the whole printed text, with each message counted once.
func text(t testing.TB, messages map[string]bool, all []*jupyter.Message) string {
	t.Helper()
	var out strings.Builder
	for _, m := range all {
		if m.Header.MsgType != "stream" || messages[m.Header.MsgID] {
			continue
		}
		messages[m.Header.MsgID] = true
		var c jupyter.StreamContent
		must.Do(t, json.Unmarshal(m.Content, &c))
		out.WriteString(c.Text)
	}
	return out.String()
}

// A connection that is cut after any message loses nothing, in either framing.
func TestSessionIsResumed(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	id := p.defaultID(t)
	framings := []*coder.DialOptions{nil, {Subprotocols: []string{jupyter.SubprotocolV1}}}
	for cutAfter := range 12 {
		query := fmt.Sprintf("?session_id=s%d", cutAfter)
		ws := p.dial(t, id, query, framings[cutAfter%2])
		request := ws.execute("for i in range(3):\n    print(i); __import__('sys').stdout.flush()\n'result'", false)
		var got []*jupyter.Message
		for len(got) < cutAfter {
			m := ws.receive()
			if m.Parent.MsgID == request.MsgID {
				got = append(got, m)
			}
			if strings.Contains(string(m.Content), `"idle"`) && m.Parent.MsgID == request.MsgID {
				break
			}
		}
		if cutAfter == 0 { // the request must have arrived
			p.settle(t)
		}
		ws.cut()
		ws = p.dial(t, id, query, framings[(cutAfter+1)%2])
		later := ws.send(jupyter.Shell, "kernel_info_request", struct{}{}, jupyter.Header{})
		for {
			m := ws.receive()
			if m.Parent.MsgID == request.MsgID {
				got = append(got, m)
			}
			if m.Parent.MsgID == later.MsgID && m.Header.MsgType == "kernel_info_reply" {
				break
			}
		}
		seen := map[string]bool{}
		var once []*jupyter.Message
		for _, m := range got {
			if !seen[m.Header.MsgID] {
				seen[m.Header.MsgID] = true
				once = append(once, m)
			}
		}
		order := types(once)
		for waited := true; waited; { // at times for settle's and another one
			order, waited = strings.CutPrefix(order, "iopub:queued ")
		}
		if out := text(t, map[string]bool{}, once); out != "0\n1\n2\n" || !strings.HasPrefix(order, "iopub:status iopub:execute_input iopub:stream") ||
			!strings.HasSuffix(order, "iopub:execute_result shell:execute_reply iopub:status") {
			t.Errorf("cut after %d: %q, %s, want %q, and messages that begin with %q and end with %q", cutAfter, out, order, "0\n1\n2\n", "iopub:status iopub:execute_input iopub:stream", "iopub:execute_result shell:execute_reply iopub:status")
		}
	}
}

// settle returns when the default kernel has nothing else to do.
func (p *ports) settle(t testing.TB) {
	t.Helper()
	p.run(t, map[string]any{"code": "1"})
}

// Acknowledged messages are not sent again, and a question waits.
func TestQuestionWaitsForTheSession(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	id := p.defaultID(t)
	ws := p.dial(t, id, "?session_id=q", nil)
	request := ws.execute("print('before'); print(input('? '))", true)
	question := ws.receive()
	for ; question.Channel != jupyter.Stdin; question = ws.receive() {
	}
	ws.cut()
	ws = p.dial(t, id, "?session_id=q", nil)
	ws.send(jupyter.Stdin, "input_reply", jupyter.InputReply{Value: "answer"}, question.Header)
	if got := text(t, map[string]bool{}, ws.until(request)); !strings.HasSuffix(got, "answer\n") {
		t.Errorf("got %q, want %q at its end", got, "answer\n")
	}
}

// Without a session_id nothing is kept, and no session gets messages of
// another.
func TestSessionsAreSeparate(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	id := p.defaultID(t)
	for _, queries := range [][2]string{{"", ""}, {"?session_id=a", "?session_id=b"}} {
		ws := p.dial(t, id, queries[0], nil)
		request := ws.execute("1", false)
		ws.until(request)
		ws.cut()
		ws = p.dial(t, id, queries[1], nil)
		later := ws.send(jupyter.Shell, "kernel_info_request", struct{}{}, jupyter.Header{})
		for m := ws.receive(); ; m = ws.receive() {
			if m.Parent.MsgID == request.MsgID && m.Channel == jupyter.Shell {
				t.Errorf("%q got what was for %q", queries[1], queries[0])
			}
			if m.Parent.MsgID == later.MsgID && m.Channel == jupyter.Shell {
				break
			}
		}
	}
}

// A session that misses too much while it has no connection is dropped whole.
func TestAbsentSessionIsBounded(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	id := p.defaultID(t)
	ws := p.dial(t, id, "?session_id=big", nil)
	request := ws.execute("input()\nfor i in range(64): print('x' * (1 << 20))", true)
	m := ws.receive()
	for ; m.Channel != jupyter.Stdin; m = ws.receive() {
	}
	ws.send(jupyter.Stdin, "input_reply", jupyter.InputReply{}, m.Header)
	ws.cut()
	p.settle(t)
	ws = p.dial(t, id, "?session_id=big", nil)
	later := ws.send(jupyter.Shell, "kernel_info_request", struct{}{}, jupyter.Header{})
	for m := ws.receive(); m.Parent.MsgID != later.MsgID || m.Channel != jupyter.Shell; m = ws.receive() {
		if m.Parent.MsgID == request.MsgID {
			t.Fatalf("%s came after a gap", m.Header.MsgType)
		}
	}
}

// When a kernel is removed its sessions are removed too.
func TestSessionsOfRemovedKernels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := withoutPython(t)
		dial, id := dialing(t, s), s.DefaultID()
		for i := range 3 {
			must.Do(t, dial(fmt.Sprintf("?session_id=%d", i)).Close())
		}
		open := dial("?session_id=open")
		synctest.Wait()
		if len(s.buffers) != 4 || len(s.sockets) != 1 {
			t.Errorf("got %d buffers and %d connections, want 4 and 1", len(s.buffers), len(s.sockets))
		}
		if answer := ask(s.Jupyter(), http.MethodDelete, "/api/kernels/"+id, ""); answer.Code != http.StatusNoContent {
			t.Errorf("got %d %s, want 204", answer.Code, answer.Body)
		}
		var err error
		for err == nil {
			_, _, err = open.ReadMessage()
		}
		if !gorilla.IsCloseError(err, gorilla.CloseGoingAway) {
			t.Errorf("got %v, want that the server goes away", err)
		}
		synctest.Wait()
		if len(s.buffers) > 0 || len(s.sockets) > 0 {
			t.Errorf("%d buffers and %d connections are left, want none", len(s.buffers), len(s.sockets))
		}
	})
}

// A connection that is opened while its kernel is removed ends with the kernel.
func TestSocketOfARemovedKernel(t *testing.T) {
	t.Parallel()
	s := withoutPython(t)
	k := s.kernels[0]
	so := func(session string) *socket {
		return &socket{server: s, kernel: k, session: session, ctx: t.Context(), shut: func() {}}
	}
	for _, session := range []string{"", "session"} {
		b, err := s.openBuffer(so(session))
		must.Do(t, err)
		b.detach()
	}
	s.removeKernel(k)
	for _, session := range []string{"", "session"} {
		if _, err := s.openBuffer(so(session)); !errors.Is(err, errRemoved) {
			t.Errorf("session %q: got %v, want errRemoved", session, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.buffers) != 0 {
		t.Errorf("%d buffers are left, want none", len(s.buffers))
	}
}

func TestPositionInTheQueue(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	id := p.defaultID(t)
	ws, other := p.dial(t, id, "", nil), p.dial(t, id, "", nil)
	first := ws.execute("input()", true)
	question := ws.receive()
	for ; question.Channel != jupyter.Stdin; question = ws.receive() {
	}
	second, third := ws.execute("2", false), ws.execute("3", false)
	queued := func(m *jupyter.Message, request jupyter.Header, position int) {
		t.Helper()
		if m.Header.MsgType != "queued" || m.Parent.MsgID != request.MsgID || string(m.Content) != fmt.Sprintf(`{"position":%d}`, position) {
			t.Errorf("got %s %s, want %s in answer to %v: %s", m.Header.MsgType, m.Content, "queued", request.MsgID, fmt.Sprintf(`{"position":%d}`, position))
		}
	}
	queued(ws.receive(), second, 1)
	queued(ws.receive(), third, 2)
	// On the other port it is a line.
	body := `{"code":"4"}`
	response := p.open(t, t.Context(), http.MethodPost, p.interpreter+"/execute", body)
	defer response.Body.Close()
	var l struct {
		Type     string
		Position int
	}
	decoder := json.NewDecoder(response.Body)
	if err := decoder.Decode(&l); err != nil || l.Type != "queued" || l.Position != 3 {
		t.Errorf("got %+v %v, want %q at position 3 and no error", l, err, "queued")
	}
	ws.send(jupyter.Stdin, "input_reply", jupyter.InputReply{Value: ""}, question.Header)
	ws.until(first)
	ws.until(third)
	if seen := types(other.until(third)); strings.Contains(seen, "queued") {
		t.Errorf("the other client saw %s", seen)
	}
}

// Every frame of a client gets an answer or a close, and the server serves the
// next client.
func FuzzFrames(f *testing.F) {
	m := &jupyter.Message{Channel: jupyter.Shell, Header: jupyter.NewHeader("kernel_info_request", "s", "u"), Content: []byte("{}")}
	v1, _ := jupyter.MarshalV1(m)
	plain, _, _ := jupyter.Marshal(m)
	m.Buffers = [][]byte{{1}}
	binary, _, _ := jupyter.Marshal(m)
	f.Add(v1, true, true)
	f.Add(plain, false, false)
	f.Add(binary, true, false)
	f.Add([]byte(`{"channel":"stdin","content":{"value":1}}`), false, false)
	f.Add([]byte(`{"channel":"control","header":{"msg_id":"1","msg_type":"shutdown_request"},"content":[]}`), false, true)
	p := serve(f, "")
	k := p.listKernels()[0]
	if _, err := k.Start(f.Context()); err != nil {
		f.Fatal(err)
	}
	url := "ws" + strings.TrimPrefix(p.jupyter, "http") + "/api/kernels/" + k.id + "/channels"
	f.Fuzz(func(t *testing.T, data []byte, isBinary, offerV1 bool) {
		if strings.Contains(string(data), "shutdown") {
			return // this ends the kernel of all the others
		}
		dialer := gorilla.Dialer{}
		if offerV1 {
			dialer.Subprotocols = []string{jupyter.SubprotocolV1}
		}
		ws, _, err := dialer.DialContext(context.Background(), url, nil)
		must.Do(t, err)
		defer ws.Close()
		kind := gorilla.TextMessage
		if isBinary {
			kind = gorilla.BinaryMessage
		}
		if ws.WriteMessage(kind, data) != nil || ws.WriteMessage(gorilla.TextMessage, plain) != nil {
			return
		}
		for {
			if _, data, err := ws.ReadMessage(); err != nil || strings.Contains(string(data), "kernel_info_reply") {
				return
			}
		}
	})
}
