package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pyshim"
	"github.com/e2bctl/e2bctl/state"
)

// TestContexts checks the request of each call about contexts, its result, and its errors.
func TestContexts(t *testing.T) {
	t.Parallel()
	const made = `{"id":"c1","language":"r","cwd":"/d"}`
	type contexts = *Contexts
	for name, tt := range map[string]struct {
		do      func(context.Context, contexts) (any, error)
		request string
		answer  string
		result  any
		fails   string
	}{
		"create": {
			do: func(ctx context.Context, c contexts) (any, error) {
				return c.Create(ctx, &CodeContextParams{"R", "/d"})
			},
			request: `POST /contexts {"id":"","language":"r","cwd":"/d"}`, answer: made, result: &CodeContext{"c1", "r", "/d"}, fails: "create a context in " + testID,
		},
		"create as usual": {
			do:      func(ctx context.Context, c contexts) (any, error) { return c.Create(ctx, nil) },
			request: `POST /contexts {"id":"","language":"python"}`, answer: `{"id":"c1"}`, result: &CodeContext{"c1", "python", ""}, fails: "create a context in " + testID,
		},
		"list": {
			do:      func(ctx context.Context, c contexts) (any, error) { return c.List(ctx) },
			request: `GET /contexts`, answer: "[" + made + `,{"id":"../c","language":"r"},{"id":"c2","language":"bash","cwd":"/"}]`,
			result: []CodeContext{{"c1", "r", "/d"}, {"c2", "bash", "/"}}, fails: "list contexts in " + testID,
		},
		"restart": {
			do:      func(ctx context.Context, c contexts) (any, error) { return nil, c.Restart(ctx, "c1") },
			request: `POST /contexts/c1/restart`, answer: "null", fails: "restart context c1 in " + testID,
		},
		"restart the default": {
			do:      func(ctx context.Context, c contexts) (any, error) { return nil, c.Restart(ctx, "") },
			request: `POST /contexts/default/restart`, answer: "null", fails: "restart context default in " + testID,
		},
		"remove": {
			do:      func(ctx context.Context, c contexts) (any, error) { return nil, c.Remove(ctx, "c1") },
			request: `DELETE /contexts/c1`, answer: "null", fails: "remove context c1 in " + testID,
		},
	} {
		s := newService(t)
		status, answer, requests := 200, tt.answer, []string(nil)
		s.contexts = func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			requests = append(requests, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+string(body)))
			w.WriteHeader(status)
			_, _ = io.WriteString(w, answer)
		}
		sb := s.sandbox()
		got, err := tt.do(t.Context(), sb.Contexts)
		if diff := cmp.Diff(tt.result, got); diff != "" || err != nil {
			t.Errorf("%s: got error %v, result (-want +got):\n%s", name, err, diff)
		}
		if diff := cmp.Diff([]string{tt.request}, requests); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", name, diff)
		}
		for status, want := range map[int]error{403: api.ErrForbidden, 404: api.ErrNotFound, 400: api.ErrInvalidArgument} {
			if err := failingContexts(t, status, tt.do); !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "sandbox: "+tt.fails+": api: ") {
				t.Errorf("%s, status %d: got error %v, want %v", name, status, err, want)
			}
		}
	}
	sb := newService(t).sandbox()
	for _, id := range []ContextID{"..", "a/b", "a?b", ContextID(strings.Repeat("a", 129))} {
		for verb, do := range map[string]func(context.Context, ContextID) error{"restart": sb.Contexts.Restart, "remove": sb.Contexts.Remove} {
			if err := do(t.Context(), id); !errors.Is(err, api.ErrInvalidArgument) || !strings.HasPrefix(err.Error(), "sandbox: "+verb+" context ") {
				t.Errorf("%s %.10q: got error %v, want %v", verb, id, err, api.ErrInvalidArgument)
			}
		}
	}
	must.Is(t, sb.Contexts.Remove(t.Context(), ""), api.ErrInvalidArgument)
}

// failingContexts returns the error of a call about contexts that is answered with a status.
func failingContexts(t *testing.T, status int, do func(context.Context, *Contexts) (any, error)) error {
	t.Helper()
	s := newService(t)
	s.contexts = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"code":1,"message":"refused"}`)
	}
	_, err := do(t.Context(), s.sandbox().Contexts)
	return err
}

// TestInterruptOfAContext checks how a context is interrupted, and the errors.
func TestInterruptOfAContext(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		id     ContextID
		status int
		want   error
		asked  string
		told   bool // by a message, because the request was refused
	}{
		"default": {status: 204, asked: testContext},
		"another": {id: "b0b", status: 204, asked: "b0b"},
		"refused": {status: 404, asked: testContext, told: true},
		"unknown": {id: "none", status: 204, want: api.ErrNotFound},
	} {
		s := newService(t)
		told := make(chan string, 10)
		s.kernel = func(k *jupytertest.Kernel) {
			for m := k.Next(); m != nil; m = k.Next() {
				told <- m.Channel + " " + m.Header.MsgType
			}
			close(told)
		}
		s.rest = func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.URL.Path != "/api/kernels/"+tt.asked+"/interrupt" {
				t.Errorf("%s: got the request %s %s", name, r.Method, r.URL)
			}
			w.WriteHeader(tt.status)
		}
		sb := s.sandbox()
		err := sb.Contexts.Interrupt(t.Context(), tt.id)
		if !errors.Is(err, tt.want) || err != nil && !strings.HasPrefix(err.Error(), "sandbox: interrupt in "+testID+": ") {
			t.Errorf("%s: got error %v, want %v", name, err, tt.want)
		}
		if n := s.seen("POST /api/kernels/"); (n == 1) != (tt.asked != "") {
			t.Errorf("%s: %d interrupts, want one", name, n)
		}
		must.Do(t, sb.Close())
		if tt.asked == "" {
			continue
		}
		if got := patience.Receive(t, "the messages to the kernel", told); (got == "control interrupt_request") != tt.told {
			t.Errorf("%s: the kernel got the message %q, want an interrupt: %v", name, got, tt.told)
		}
	}
}

// evalReply is the answer of a kernel to one request.
type evalReply struct {
	reply jupyter.ExecuteReply
}

func evaluated(r jupyter.ExpressionReply) evalReply {
	return evalReply{jupyter.ExecuteReply{Status: "ok", UserExpressions: map[string]jupyter.ExpressionReply{"value": r}}}
}

func document(text string) evalReply {
	quoted, _ := json.Marshal(text)
	return evaluated(jupyter.ExpressionReply{Status: "ok", Data: map[string]json.RawMessage{pyshim.MIME: quoted}})
}

// TestEval checks the requests of an evaluation, its value, and its errors.
func TestEval(t *testing.T) {
	t.Parallel()
	raised := jupyter.ErrorContent{Name: "NameError", Value: "x", Traceback: []string{"a", "b"}}
	absent := evaluated(jupyter.ExpressionReply{Status: "error", ErrorContent: jupyter.ErrorContent{Name: "KeyError", Value: "'_e2bctl_state'"}})
	failed := evalReply{jupyter.ExecuteReply{Status: "error", ErrorContent: raised}}
	installed := evalReply{jupyter.ExecuteReply{Status: "ok"}}
	isExecution := func(name string) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*ExecutionError](err)
			if ok && e.Name == "NameError" && e.Value+e.Traceback != "xa\nb" {
				return false
			}
			return ok && e.Name == name
		}
	}
	isDecode := func(err error) bool {
		_, ok := errors.AsType[*state.DecodeError](err)
		return ok && strings.HasPrefix(err.Error(), "sandbox: evaluate an expression in "+testID+": ")
	}
	for name, tt := range map[string]struct {
		replies  []evalReply
		installs bool
		fails    func(error) bool
	}{
		"a value":           {replies: []evalReply{document(`{"v":1,"value":7}`)}},
		"the first value":   {replies: []evalReply{absent, installed, document(`{"v":1,"value":7}`)}, installs: true},
		"never installed":   {replies: []evalReply{absent, installed, absent}, installs: true, fails: isExecution("KeyError")},
		"cannot install":    {replies: []evalReply{absent, failed}, installs: true, fails: isExecution("NameError")},
		"raises":            {replies: []evalReply{evaluated(jupyter.ExpressionReply{Status: "error", ErrorContent: raised})}, fails: isExecution("NameError")},
		"the request fails": {replies: []evalReply{failed}, fails: isExecution("NameError")},
		"another type":      {replies: []evalReply{document(`{"v":1,"value":"text"}`)}, fails: isDecode},
		"no document": {replies: []evalReply{evaluated(jupyter.ExpressionReply{Status: "ok"})}, fails: func(err error) bool {
			return strings.HasPrefix(err.Error(), "sandbox: evaluate an expression in "+testID+": the kernel's answer has no "+pyshim.MIME)
		}},
	} {
		s := newService(t)
		var requests []jupyter.ExecuteRequest
		s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
			var r jupyter.ExecuteRequest
			_ = json.Unmarshal(m.Content, &r)
			if requests = append(requests, r); len(requests) > len(tt.replies) {
				t.Errorf("%s: got a further request %+v", name, r)
				return
			}
			k.Status(m, "busy")
			k.Say(m, jupyter.Shell, "execute_reply", tt.replies[len(requests)-1].reply)
			k.Status(m, "idle")
		})
		got, err := Eval[int](t.Context(), s.sandbox(), "1 + 6")
		want := 7
		if tt.fails != nil {
			want = 0
		}
		if (err != nil) != (tt.fails != nil) || got != want || err != nil && !tt.fails(err) {
			t.Errorf("%s: got %d and error %v, want %d", name, got, err, want)
		}
		call := jupyter.ExecuteRequest{Silent: true, UserExpressions: map[string]string{"value": pyshim.Call("evaluate", "1 + 6", MaxEvalBytes)}}
		sent := []jupyter.ExecuteRequest{call, {Silent: true, Code: pyshim.Install(), UserExpressions: map[string]string{}}, call}[:len(tt.replies)]
		if diff := cmp.Diff(sent, requests); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", name, diff)
		}
	}
	sb := newService(t).sandbox(WithCodeTransport(CodeTransportHTTP))
	if _, err := Eval[int](t.Context(), sb, "1"); !errors.Is(err, ErrNeedsWebsocket) || !strings.HasPrefix(err.Error(), "sandbox: evaluate an expression in "+testID) {
		t.Errorf("over HTTP: got error %v, want %v", err, ErrNeedsWebsocket)
	}
	_, err := Eval[int](t.Context(), sb, "'\xff'")
	must.Is(t, err, api.ErrInvalidArgument)
}

// TestRunHost checks the parts of a handle that package agent uses.
func TestRunHost(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		k.Stream(m, "stdout", "out")
		k.Reply(m, "ok")
		k.Status(m, "idle")
	})
	sb := s.sandbox()
	h := runHost{sb}
	for id, want := range map[string]string{"": testContext, "other": "other"} {
		if got, err := h.ContextID(t.Context(), id); err != nil || got != want {
			t.Errorf("context %q: got %q and error %v, want %q", id, got, err, want)
		}
	}
	made := 0
	for range 2 {
		if got := h.Attached(func() any { made++; return made }); got != 1 {
			t.Errorf("got the value %v, want the first one", got)
		}
	}
	if h.TemplateID() != "t" || h.Logger() == nil || h.Logger() != sb.client.api.Logger() {
		t.Errorf("got the template %q and the logger %v", h.TemplateID(), h.Logger())
	}
	c := runCollector{newCollector(&RunCodeParams{MaxOutputBytes: 100})}
	for i := range 2 {
		c.Failed(fmt.Sprint("E", i), "v", "t")
	}
	e, ok := c.Finished().(*Execution)
	if !ok || e.Error == nil || e.Error.Name+e.Error.Value+e.Error.Traceback != "E0vt" {
		t.Errorf("got %+v, want the first failure", e)
	}
}
