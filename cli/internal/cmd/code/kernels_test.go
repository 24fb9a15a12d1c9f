package code

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
)

// pixel is a picture as a kernel displays it.
const pixel = "iVBORw0KGgo="

// kernels is a service with a sandbox, and the kernels of its contexts: c1 and c3 with Python, c2 with Bash.
type kernels struct {
	t    *testing.T
	deaf bool   // there is no websocket
	ends string // what the end of a program returns; "raise" and "die": it raises an exception, or the sandbox is gone

	errs    *cmdtest.Output // standard error of the command; nil: the terminal
	unkept  bool            // no history can be kept
	unsized bool            // the terminal has no size
	asked   chan string     // the kind of a question that waits for resume
	resume  chan struct{}

	mu          sync.Mutex
	gone        bool // the sandbox
	interrupts  int
	killed      int
	ran         []string // code
	opened      []string // the kernels that were connected to
	interrupted chan struct{}
}

func (s *kernels) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	switch path := r.URL.Path; {
	case gone && r.Header.Get("E2b-Sandbox-Id") != "":
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, `{"sandboxId":"i1","message":"The sandbox was not found","code":502}`)
	case gone && r.Method == http.MethodGet:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":404,"message":"gone"}`)
	case strings.HasSuffix(path, "/channels") && !s.deaf:
		s.mu.Lock()
		s.opened = append(s.opened, strings.TrimSuffix(strings.TrimPrefix(path, "/api/kernels/"), "/channels"))
		s.mu.Unlock()
		k, err := jupytertest.Upgrade(s.t, w, r)
		if err != nil {
			s.t.Error(err)
			return
		}
		defer k.Socket.Close()
		for m := k.Next(); m != nil; m = k.Next() {
			s.answer(k, m)
		}
	case strings.HasSuffix(path, "/interrupt"):
		s.mu.Lock()
		s.interrupts++
		s.mu.Unlock()
		s.interrupted <- struct{}{}
		w.WriteHeader(http.StatusNoContent)
	case path == "/contexts" && r.Method == http.MethodGet:
		_, _ = io.WriteString(w, `[{"id":"c1","language":"python","cwd":"/home/user"},{"id":"c2","language":"bash","cwd":"/home/user"},{"id":"c3","language":"python","cwd":"/home/user"}]`)
	case path == "/execute":
		_, _ = io.WriteString(w, `{"type":"stdout","text":"over HTTP\n"}`+"\n"+`{"type":"end_of_execution"}`+"\n")
	case r.Header.Get("E2b-Sandbox-Id") != "":
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprintf(w, `{"sandboxId":"i1","message":"The sandbox is running but port is not open","port":%s,"code":502}`, r.Header.Get("E2b-Sandbox-Port"))
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"sandboxID":"i1","templateID":"t","envdVersion":"0.6.13"}`)
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		s.killed++
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		_, _ = io.WriteString(w, `{"sandboxID":"i1","state":"running"}`)
	}
}

// answer answers one request to a kernel.
func (s *kernels) answer(k *jupytertest.Kernel, m *jupyter.Message) {
	var asked struct {
		Code   string `json:"code"`
		Cursor int    `json:"cursor_pos"`
		Level  int    `json:"detail_level"`
	}
	if err := json.Unmarshal(m.Content, &asked); err != nil {
		s.t.Error(err)
	}
	reply := func(content map[string]any) {
		content["status"] = "ok"
		k.Status(m, "busy")
		k.Say(m, jupyter.Shell, strings.Replace(m.Header.MsgType, "_request", "_reply", 1), content)
		k.Status(m, "idle")
	}
	refuse := func(kind string) {
		k.Status(m, "busy")
		k.Say(m, jupyter.Shell, kind, map[string]any{"status": "error", "ename": "E", "evalue": "no", "traceback": []string{}})
		k.Status(m, "idle")
	}
	if code := strings.TrimSuffix(asked.Code, "\n"); s.asked != nil && (code == "slow" || code == "late") && (code == "slow") != (m.Header.MsgType == "execute_request") {
		s.asked <- m.Header.MsgType
		<-s.resume
	}
	switch m.Header.MsgType {
	case "is_complete_request":
		if asked.Code == "unchecked" {
			refuse("is_complete_reply")
			return
		}
		status, indent := "complete", ""
		if strings.Contains(asked.Code, ":") && !strings.HasSuffix(asked.Code, "\n") {
			status, indent = "incomplete", "    "
		}
		k.Status(m, "busy")
		k.Say(m, jupyter.Shell, "is_complete_reply", map[string]any{"status": status, "indent": indent})
		k.Status(m, "idle")
	case "complete_request":
		word := asked.Code[strings.LastIndexAny(asked.Code[:asked.Cursor], " \n(")+1 : asked.Cursor]
		matches, start := []string{}, asked.Cursor-len(word)
		switch word {
		case "bad":
			refuse("complete_reply")
			return
		case "early":
			matches, start = append(matches, "earlier"), 0
		case "emp":
			matches = append(matches, "", "empty")
		}
		for _, name := range []string{"alpha", "alphabet", "beta", "broken\x1bname"} {
			if strings.HasPrefix(name, word) {
				matches = append(matches, name)
			}
		}
		reply(map[string]any{"matches": matches, "cursor_start": start, "cursor_end": asked.Cursor, "metadata": map[string]any{}})
	case "inspect_request":
		reply(map[string]any{"found": asked.Code == "len", "data": map[string]any{"text/plain": fmt.Sprintf("help on %s, level %d\n", asked.Code, asked.Level)}, "metadata": map[string]any{}})
	case "execute_request":
		s.run(k, m, asked.Code)
	}
}

// run runs code.
func (s *kernels) run(k *jupytertest.Kernel, m *jupyter.Message, code string) {
	raised := func(name string) {
		content := jupyter.ErrorContent{Name: name, Value: "no", Traceback: []string{"line 3\n" + name + ": no"}}
		k.Say(m, jupyter.IOPub, "error", content)
		k.Reply(m, "error")
	}
	s.mu.Lock()
	s.ran = append(s.ran, code)
	s.mu.Unlock()
	result := func(text string) {
		k.Say(m, jupyter.IOPub, "execute_result", map[string]any{"data": map[string]any{"text/plain": text}, "metadata": map[string]any{}, "execution_count": 7})
	}
	picture := map[string]any{"data": map[string]any{"image/png": pixel}, "metadata": map[string]any{}}
	k.Begin(m)
	switch {
	case code == "late": // the kernel may be busy more than once
		k.Status(m, "busy")
		code = "hang"
	case strings.Contains(code, "_e2bctl_begin"):
		code = "begin"
	case strings.Contains(code, "_e2bctl_end"):
		k.Stream(m, "stdout", "the end\n")
		if code = s.ends; code != "raise" && code != "die" {
			result(s.ends)
			code = "begin"
		}
	}
	switch code {
	case "begin":
	case "6 * 7":
		result("42")
	case "half":
		k.Stream(m, "stdout", "half a line")
	case "raise":
		k.Stream(m, "stderr", "warned\n")
		raised("ValueError")
		k.Status(m, "idle")
		return
	case "exit":
		raised("SystemExit")
		k.Status(m, "idle")
		return
	case "hang":
		k.Stream(m, "stdout", "begun\n")
		<-s.interrupted
		raised("KeyboardInterrupt")
		k.Status(m, "idle")
		return
	case "stubborn":
		k.Stream(m, "stdout", "begun\n")
		<-s.interrupted
		k.Stream(m, "stdout", "no, thanks\n")
		<-s.interrupted
	case "ask", "secret", "ask, then hang":
		if !s.asks(k, m, code) {
			return
		}
	case "fail":
		raised("ValueError")
		k.Status(m, "idle")
		return
	case "display", "figure":
		data := map[string]any{"text/plain": "'a " + code + "'"}
		if code == "figure" {
			data["image/png"] = pixel
		}
		k.Say(m, jupyter.IOPub, "display_data", map[string]any{"data": data, "metadata": map[string]any{}})
	case "picture":
		k.Say(m, jupyter.IOPub, "display_data", picture)
	case "die":
		s.mu.Lock()
		s.gone = true
		s.mu.Unlock()
		k.Socket.Close()
		return
	default:
		k.Stream(m, "stdout", "ran "+strings.ReplaceAll(code, "\n", "|")+"\n")
	}
	k.Reply(m, "ok")
	k.Status(m, "idle")
}

// asks runs code that asks for input. It returns whether the code ends as usual.
func (s *kernels) asks(k *jupytertest.Kernel, m *jupyter.Message, code string) bool {
	switch code {
	case "secret":
		k.Say(m, jupyter.Stdin, "input_request", jupyter.InputRequest{Prompt: "password? ", Password: true})
		k.Stream(m, "stdout", fmt.Sprintf("%d characters\n", len(k.Answer())))
		return true
	case "ask, then hang":
		k.Ask(m, "name? ")
		k.Stream(m, "stdout", "hello "+k.Answer()+"\n")
		<-s.interrupted
		k.Say(m, jupyter.IOPub, "error", jupyter.ErrorContent{Name: "KeyboardInterrupt", Value: "no", Traceback: []string{"line 3\nKeyboardInterrupt: no"}})
		k.Reply(m, "error")
		k.Status(m, "idle")
		return false
	}
	k.Ask(m, "first\n\x1b[2Jname? ")
	answers := make(chan string, 1)
	go func() { answers <- k.Answer() }()
	select {
	case name := <-answers:
		k.Stream(m, "stdout", "hello "+name+"\n")
		return true
	case <-s.interrupted:
		k.Reply(m, "ok")
		k.Status(m, "idle")
		<-answers // until the end of the session
		return false
	}
}
