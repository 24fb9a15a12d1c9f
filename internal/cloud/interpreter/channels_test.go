//go:build linux

package interpreter

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pipetest"
)

// peer is a websocket client of the kernel made with another library than ours.
type peer struct {
	t  testing.TB
	ws *coder.Conn
	v1 bool
}

func (p *ports) dial(t testing.TB, id, query string, options *coder.DialOptions) *peer {
	t.Helper()
	url := "ws" + strings.TrimPrefix(p.jupyter, "http") + "/api/kernels/" + id + "/channels" + query
	ws, _, err := coder.Dial(t.Context(), url, options)
	must.Do(t, err)
	ws.SetReadLimit(-1)
	t.Cleanup(func() { ws.CloseNow() })
	return &peer{t: t, ws: ws, v1: ws.Subprotocol() == jupyter.SubprotocolV1}
}

func (p *peer) send(channel, msgType string, content any, parent jupyter.Header) jupyter.Header {
	p.t.Helper()
	data, err := json.Marshal(content)
	must.Do(p.t, err)
	m := &jupyter.Message{Channel: channel, Header: jupyter.NewHeader(msgType, "peer", "e2b"), Parent: parent, Content: data}
	kind, frame := coder.MessageBinary, []byte(nil)
	if p.v1 {
		frame, err = jupyter.MarshalV1(m)
	} else {
		kind = coder.MessageText
		frame, _, err = jupyter.Marshal(m)
	}
	must.Do(p.t, err)
	must.Do(p.t, p.ws.Write(p.t.Context(), kind, frame))
	return m.Header
}

func (p *peer) receive() *jupyter.Message {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience.Limit)
	defer cancel()
	kind, frame, err := p.ws.Read(ctx)
	must.Do(p.t, err)
	var m *jupyter.Message
	if p.v1 {
		m, err = jupyter.UnmarshalV1(frame)
	} else {
		m, err = jupyter.Unmarshal(frame, kind == coder.MessageBinary)
	}
	must.Do(p.t, err)
	return m
}

func (p *peer) execute(code string, allowStdin bool) jupyter.Header {
	return p.send(jupyter.Shell, "execute_request", jupyter.ExecuteRequest{
		Code: code, StoreHistory: true, StopOnError: true, AllowStdin: allowStdin,
	}, jupyter.Header{})
}

// until returns all messages that answer request, up to its idle.
func (p *peer) until(request jupyter.Header) (messages []*jupyter.Message) {
	p.t.Helper()
	for {
		m := p.receive()
		if m.Parent.MsgID != request.MsgID {
			continue
		}
		messages = append(messages, m)
		if m.Header.MsgType == "status" && strings.Contains(string(m.Content), `"idle"`) {
			return messages
		}
	}
}

func types(messages []*jupyter.Message) string {
	var list []string
	for _, m := range messages {
		list = append(list, m.Channel+":"+m.Header.MsgType)
	}
	return strings.Join(list, " ")
}

func (p *ports) defaultID(t testing.TB) string {
	t.Helper()
	_, body := p.call(t, t.Context(), http.MethodGet, p.interpreter+"/contexts", "")
	var contexts []contextModel
	if err := json.Unmarshal([]byte(body), &contexts); err != nil || len(contexts) != 1 || contexts[0].Language != "python" {
		t.Fatalf("contexts %q: %v, want one context, language %q and no error", body, err, "python")
	}
	return contexts[0].ID
}

func TestChannels(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	id := p.defaultID(t)
	for name, options := range map[string]*coder.DialOptions{
		"default": nil, "v1": {Subprotocols: []string{jupyter.SubprotocolV1}},
	} {
		t.Run(name, func(t *testing.T) {
			ws := p.dial(t, id, "", options)
			if ws.v1 != (name == "v1") {
				t.Errorf("subprotocol v1 is %v, want %v", ws.v1, name == "v1")
			}
			got := ws.until(ws.execute("print('a'); 40 + 2", false))
			want := "iopub:status iopub:execute_input iopub:stream iopub:execute_result shell:execute_reply iopub:status"
			if types(got) != want {
				t.Errorf("got %s\nwant %s", types(got), want)
			}
			got = ws.until(ws.send(jupyter.Shell, "kernel_info_request", struct{}{}, jupyter.Header{}))
			if types(got) != "iopub:status shell:kernel_info_reply iopub:status" || !strings.Contains(string(got[1].Content), `"protocol_version":"5.3"`) {
				t.Errorf("kernel_info: %s, want %q and %q in the reply", types(got), "iopub:status shell:kernel_info_reply iopub:status", `"protocol_version":"5.3"`)
			}
			for _, request := range []string{"comm_info_request", "history_request"} {
				got = ws.until(ws.send(jupyter.Shell, request, struct{}{}, jupyter.Header{}))
				if len(got) != 3 || !strings.Contains(string(got[1].Content), `"ok"`) {
					t.Errorf("%s: got %s, want 3 messages and %q in the reply", request, types(got), `"ok"`)
				}
			}
			got = ws.until(ws.send(jupyter.Shell, "is_complete_request", map[string]string{"code": "for i in x:"}, jupyter.Header{}))
			if want := `"status":"incomplete"`; !strings.Contains(string(got[1].Content), want) {
				t.Errorf("is_complete: %s, want %q in it", got[1].Content, want)
			}
			got = ws.until(ws.send(jupyter.Shell, "complete_request", map[string]any{"code": "impor", "cursor_pos": 5}, jupyter.Header{}))
			if !strings.Contains(string(got[1].Content), `"import"`) {
				t.Errorf("complete: %s, want %q in it", got[1].Content, `"import"`)
			}
			got = ws.until(ws.send(jupyter.Shell, "inspect_request", map[string]any{"code": "len", "cursor_pos": 3}, jupyter.Header{}))
			if !strings.Contains(string(got[1].Content), `number of items`) {
				t.Errorf("inspect: %s, want %q in it", got[1].Content, `number of items`)
			}
			got = ws.until(ws.send(jupyter.Shell, "nonsense_request", struct{}{}, jupyter.Header{}))
			if reply := got[len(got)-2]; !strings.Contains(string(reply.Content), "not supported") {
				t.Errorf("nonsense: %s %s, want %q in it", types(got), reply.Content, "not supported")
			}
			for _, request := range []string{"kernel_info_request", "interrupt_request", "debug_request"} {
				got = ws.until(ws.send(jupyter.Control, request, struct{}{}, jupyter.Header{}))
				if want := "iopub:status control:" + strings.TrimSuffix(request, "request") + "reply iopub:status"; types(got) != want {
					t.Errorf("%s: got %s, want %s", request, types(got), want)
				}
				if ok := strings.Contains(string(got[1].Content), `"status":"ok"`); ok != (request != "debug_request") {
					t.Errorf("%s: got %s, want success: %v", request, got[1].Content, request != "debug_request")
				}
			}
		})
	}
	// Variables set through one port are visible through the other.
	if got := merged(p.run(t, map[string]any{"code": "_ , 7"}), "result"); !strings.HasSuffix(got, "7)") {
		t.Errorf("the other port: %q, want %q at its end", got, "7)")
	}
}

func TestStdinAndControlChannels(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	ws, other := p.dial(t, p.defaultID(t), "", nil), p.dial(t, p.defaultID(t), "", nil)
	request := ws.execute("input('name? ')", true)
	for {
		m := ws.receive()
		if m.Channel == jupyter.Stdin {
			if m.Parent.MsgID != request.MsgID || string(m.Content) != `{"prompt":"name? ","password":false}` {
				t.Errorf("got %+v %s, want an answer to %v with %s", m, m.Content, request.MsgID, `{"prompt":"name? ","password":false}`)
			}
			other.send(jupyter.Stdin, "input_reply", jupyter.InputReply{Value: "the other"}, m.Header)
			other.until(other.send(jupyter.Control, "kernel_info_request", struct{}{}, jupyter.Header{})) // it was read
			ws.send(jupyter.Stdin, "input_reply", jupyter.InputReply{Value: "me"}, m.Header)
			break
		}
	}
	if got := ws.until(request); !strings.Contains(string(got[len(got)-3].Content), "'me'") {
		t.Errorf("got %s, want %q in the result", types(got), "'me'")
	}
	seen := types(other.until(request))
	if strings.Contains(seen, "shell:") || strings.Contains(seen, "stdin:") || !strings.Contains(seen, "execute_result") {
		t.Errorf("the other client saw %s", seen)
	}
	request = ws.execute("import time; print('here'); time.sleep(60)", false)
	for m := ws.receive(); m.Header.MsgType != "stream"; m = ws.receive() {
	}
	ws.send(jupyter.Control, "interrupt_request", struct{}{}, jupyter.Header{})
	if seen := types(ws.until(request)); !strings.Contains(seen, "error") {
		t.Errorf("got %s, want %q in it", seen, "error")
	}
	ws.send(jupyter.Control, "shutdown_request", map[string]bool{"restart": true}, jupyter.Header{})
	for m := ws.receive(); !strings.Contains(string(m.Content), "restarting"); m = ws.receive() {
	}
	if got := ws.until(ws.execute("time.sleep", false)); !strings.Contains(types(got), "error") {
		t.Errorf("state survived a restart: %s, want %q in it", types(got), "error")
	}
}

// An answer that is sent again does not answer the next question.
func TestAnswerThatComesTwice(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	ws := p.dial(t, p.defaultID(t), "", nil)
	request := ws.execute("input('first'), input('second')", true)
	question := func() jupyter.Header {
		m := ws.receive()
		for ; m.Channel != jupyter.Stdin; m = ws.receive() {
		}
		return m.Header
	}
	first := question()
	ws.send(jupyter.Stdin, "input_reply", jupyter.InputReply{Value: "1"}, first)
	question()
	ws.send(jupyter.Stdin, "input_reply", jupyter.InputReply{Value: "1"}, first)
	ws.send(jupyter.Stdin, "input_reply", jupyter.InputReply{Value: "2"}, jupyter.Header{}) // as most clients do
	if got := ws.until(request); !strings.Contains(string(got[len(got)-3].Content), "('1', '2')") {
		t.Errorf("got %s, want %q in it", got[len(got)-3].Content, "('1', '2')")
	}
}

func TestOriginTokenAndUnknownKernel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := withoutPython(t)
		s.options.Token = func() string { return "secret" }
		transport := pipetest.Serve(t, s.Jupyter())
		dialer, id := gorilla.Dialer{NetDialContext: transport.DialContext}, s.DefaultID()
		for _, test := range []struct {
			path   string
			header http.Header
			status int
		}{
			{id + "/channels", nil, 403},
			{id + "/channels?token=wrong", nil, 403},
			{id + "/channels?token=secret", nil, 101},
			{id + "/channels", http.Header{"X-Access-Token": {"secret"}}, 101},
			{id + "/channels", http.Header{"Authorization": {"token secret"}}, 101},
			{id + "/channels", http.Header{"Authorization": {"Bearer  secret "}}, 101},
			{id + "/channels", http.Header{"Authorization": {"basic secret"}}, 403},
			{id + "/channels", http.Header{"Authorization": {"secret"}}, 403},
			{id + "/channels?token=secret", http.Header{"Origin": {"http://sandbox"}}, 101},
			{id + "/channels?token=secret", http.Header{"Origin": {"http://evil.example"}}, 403},
			{"nobody/channels?token=secret", nil, 404},
			{id + "/channels?token=secret", http.Header{"Origin": {"null"}}, 403},
		} {
			ws, response, err := dialer.DialContext(t.Context(), "ws://sandbox/api/kernels/"+test.path, test.header)
			if response == nil {
				t.Fatalf("got %v, want a response", err)
			}
			if response.StatusCode != test.status {
				t.Errorf("%s %v: got %d, want %d", test.path, test.header, response.StatusCode, test.status)
			}
			must.Do(t, response.Body.Close())
			if ws != nil {
				must.Do(t, ws.Close())
			}
		}
		p := &ports{client: &http.Client{Transport: transport}}
		for origin, want := range map[string]int{"http://sandbox": 201, "HTTP://SANDBOX": 201, "http://evil.example": 403, "null": 403, "%": 403} {
			if status, body := p.call(t, t.Context(), http.MethodPost, "http://sandbox/api/kernels?token=secret", "{}", "Origin", origin); status != want {
				t.Errorf("Origin %s: got %d %s, want %d", origin, status, body, want)
			}
		}
	})
}

// An earlier request of a session does not replace a later one, however late it
// is handled.
func TestEarlierRequestDoesNotReplaceALaterOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := withoutPython(t)
		earlier := &socket{session: "a", kernel: s.kernels[0], done: make(chan struct{})}
		earlier.ctx, earlier.shut = context.WithCancel(t.Context())
		defer earlier.shut()
		if !s.addSocket(earlier) {
			t.Fatal("no room")
		}
		defer s.removeSocket(earlier)
		dialing(t, s)("?session_id=a")
		synctest.Wait() // the later one is attached
		if b, err := s.openBuffer(earlier); b != nil || !errors.Is(err, errReplaced) {
			t.Errorf("got %v, %v, want no buffer and %v", b, err, errReplaced)
		}
		if len(s.buffers) != 1 || s.buffers[0].reader == nil || s.buffers[0].reader.number != earlier.number+1 {
			t.Errorf("%d buffers are there, want that of the later connection", len(s.buffers))
		}
	})
}

// smolagents' messages have no date and no channel, and it stops reading at the
// first idle.
func TestMessageWithoutChannelAndDate(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	ws := p.dial(t, p.defaultID(t), "", nil)
	text := `{"header":{"msg_id":"m1","username":"anonymous","session":"s1","msg_type":"execute_request","version":"5.0"},` +
		`"parent_header":{},"metadata":{},"content":{"code":"6*7","silent":false,"store_history":true,"user_expressions":{},"allow_stdin":false}}`
	must.Do(t, ws.ws.Write(t.Context(), coder.MessageText, []byte(text)))
	if got := ws.until(jupyter.Header{MsgID: "m1"}); !strings.Contains(types(got), "execute_result") {
		t.Errorf("got %s, want %q in it", types(got), "execute_result")
	}
}

// A client that watches and does not read is disconnected; it does not stop the
// others.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	id := p.defaultID(t)
	idle := p.dial(t, id, "", nil)
	ws := p.dial(t, id, "", nil)
	size := 0
	for _, m := range ws.until(ws.execute("import sys; sys.stdout.write('x' * (32 << 20)); None", false)) {
		if m.Header.MsgType == "stream" {
			var c jupyter.StreamContent
			must.Do(t, json.Unmarshal(m.Content, &c))
			size += len(c.Text)
		}
	}
	if size != 32<<20 {
		t.Errorf("%d bytes came, want %d", size, 32<<20)
	}
	for {
		if _, _, err := idle.ws.Read(t.Context()); err != nil {
			// The reason reaches the client only if it begins to read in time.
			if code := coder.CloseStatus(err); code != coder.StatusPolicyViolation && code != -1 {
				t.Errorf("the one that did not read: %v", err)
			}
			return
		}
	}
}

func TestJupyterREST(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	ctx := t.Context()
	do := func(method, path, body string, want int) (out map[string]any) {
		t.Helper()
		status, text := p.call(t, ctx, method, p.jupyter+path, body)
		if status != want {
			t.Fatalf("%s %s: %d %s, want %d", method, path, status, text, want)
		}
		_ = json.Unmarshal([]byte(text), &out)
		return out
	}
	if v := do("GET", "/api", "", 200); v["version"] == "" {
		t.Errorf(`got %v, want a version`, v)
	}
	if v := do("GET", "/api/status", "", 200); v["kernels"] != 1.0 {
		t.Errorf(`got %v, want one kernel`, v)
	}
	if v := do("GET", "/api/kernelspecs/python3", "", 200); v["name"] != "python3" {
		t.Errorf(`kernelspec: %v, want v["name"] = %q`, v, "python3")
	}
	do("GET", "/api/kernelspecs/foo", "", 404)
	if v := do("GET", "/api/kernelspecs", "", 200); v["default"] != "python3" {
		t.Errorf(`got %v, want v["default"] = %q`, v, "python3")
	}
	k := do("POST", "/api/kernels", "", 201)
	id, _ := k["id"].(string)
	if k["name"] != "python3" || id == "" {
		t.Fatalf(`got %v, want the name %q and an id`, k, "python3")
	}
	do("POST", "/api/kernels", `{"name":"foo"}`, 500)
	do("POST", "/api/kernels", `{`, 400)
	do("POST", "/api/kernels/"+id+"/interrupt", "", 204)
	if v := do("POST", "/api/kernels/"+id+"/restart", "", 200); v["id"] != id || v["execution_state"] != "idle" {
		t.Errorf(`got %v, want v["id"] = %v and v["execution_state"] = %q`, v, id, "idle")
	}
	do("GET", "/api/kernels/"+id+"/channels", "", 400)
	do("DELETE", "/api/kernels/"+id, "", 204)
	do("GET", "/api/kernels/"+id, "", 404)
	do("POST", "/api/sessions", `{"name":"n"}`, 400)
	if v := do("POST", "/api/sessions", `{"path":"p","type":"notebook","kernel":{"name":"foo"}}`, 501); v["short_message"] != "foo not found" {
		t.Errorf(`got %v, want v["short_message"] = %q`, v, "foo not found")
	}
	o := do("POST", "/api/sessions", `{"path":"p","name":"n","type":"notebook","kernel":{"name":"python"}}`, 201)
	session, _ := o["id"].(string)
	if again := do("POST", "/api/sessions", `{"path":"p","type":"notebook"}`, 201); again["id"] != session {
		t.Errorf(`the same path gave another session: %v, want again["id"] = %v`, again, session)
	}
	if v := do("PATCH", "/api/sessions/"+session, `{"path":"q"}`, 200); v["path"] != "q" || v["name"] != "n" {
		t.Errorf(`got %v, want v["path"] = %q and v["name"] = %q`, v, "q", "n")
	}
	for _, path := range []string{"/api/contents", "/api/terminals", "/lab"} {
		if v := do("GET", path, "", 404); !strings.Contains(v["message"].(string), path) {
			t.Errorf("got %v, want a message that names %s", v, path)
		}
	}
	testKernelIDs(t, do)
	testSessionsOfRemovedKernels(t, do)
	for range maxKernels - 2 {
		do("POST", "/api/kernels", "", 201)
	}
	if v := do("POST", "/api/kernels", "", 409); !strings.Contains(v["message"].(string), "the limit of a sandbox is 64") {
		t.Errorf(`got %v, want a message with %q`, v, "the limit of a sandbox is 64")
	}
	do("DELETE", "/api/sessions/"+session, "", 204)
	do("GET", "/api/sessions/"+session, "", 404)
}

type restCall = func(method, path, body string, want int) map[string]any

func testKernelIDs(t *testing.T, do restCall) {
	t.Helper()
	const chosen = "01234567-89ab-cdef-0123-456789abcdef"
	if v := do("POST", "/api/kernels", `{"kernel_id":"`+chosen+`"}`, 201); v["id"] != chosen {
		t.Errorf(`got %v, want v["id"] = %v`, v, chosen)
	}
	if v := do("POST", "/api/kernels", `{"kernel_id":"`+chosen+`"}`, 409); !strings.Contains(v["message"].(string), chosen) {
		t.Errorf(`got %v, want a message with %q`, v, chosen)
	}
	for _, id := range []string{"default", "../../x", "a-b-c-d-\\n", strings.Repeat("a-b-c-d-e", 100)} {
		do("POST", "/api/kernels", `{"kernel_id":"`+id+`"}`, 400)
	}
	do("DELETE", "/api/kernels/"+chosen, "", 204)
}

// A session whose kernel was removed reports that once, and is not listed.
func testSessionsOfRemovedKernels(t *testing.T, do restCall) {
	t.Helper()
	open := func(path string) (session, kernel string) {
		v := do("POST", "/api/sessions", `{"path":"`+path+`","type":"notebook"}`, 201)
		return v["id"].(string), v["kernel"].(map[string]any)["id"].(string)
	}
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		session, kernel := open("gone")
		do("DELETE", "/api/kernels/"+kernel, "", 204)
		do(method, "/api/sessions/"+session, "", 410)
		do(method, "/api/sessions/"+session, "", 404)
	}
	session, kernel := open("gone")
	do("DELETE", "/api/kernels/"+kernel, "", 204)
	again, _ := open("gone")
	if again == session {
		t.Error("the path of a session without a kernel gave that session")
	}
	do("GET", "/api/sessions/"+session, "", 404)
	// Another kernel takes the place of the earlier one.
	_, kernel = open("gone")
	v := do("PATCH", "/api/sessions/"+again, `{"kernel":{"name":"python3"}}`, 200)
	if v["kernel"].(map[string]any)["id"] == kernel {
		t.Errorf(`got %v, want another kernel than %v`, v, kernel)
	}
	do("GET", "/api/kernels/"+kernel, "", 404)
	do("PATCH", "/api/sessions/"+again, `{"kernel":{"id":"no-such-kernel"}}`, 404)
	do("DELETE", "/api/sessions/"+again, "", 204)
	do("DELETE", "/api/sessions/"+again, "", 404)
}

func BenchmarkExecute(b *testing.B) {
	p := serve(b, "")
	k := p.listKernels()[0]
	_, err := k.Start(b.Context())
	must.Do(b, err)
	b.Run("websocket", func(b *testing.B) {
		ws := p.dial(b, k.id, "", nil)
		for b.Loop() {
			ws.until(ws.execute("1+1", false))
		}
	})
	b.Run("http", func(b *testing.B) {
		for b.Loop() {
			p.run(b, map[string]any{"code": "1+1"})
		}
	})
	b.Run("stdin", func(b *testing.B) {
		ws := p.dial(b, k.id, "", nil)
		request := ws.execute("while input('more'): pass", true)
		for b.Loop() {
			for m := ws.receive(); ; m = ws.receive() {
				if m.Channel == jupyter.Stdin {
					ws.send(jupyter.Stdin, "input_reply", jupyter.InputReply{Value: "yes"}, m.Header)
					break
				}
			}
		}
		ws.send(jupyter.Control, "interrupt_request", struct{}{}, jupyter.Header{})
		ws.until(request)
	})
}
