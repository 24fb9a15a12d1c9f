//go:build linux

package kernel

import (
	_ "embed"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

//go:embed testdata/parts.py
var parts string

// TestPartsOfTheDriver runs the tests of the driver that need no kernel.
func TestPartsOfTheDriver(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		cmd := exec.CommandContext(patience.Context(t), python, "-B", "-c", parts)
		cmd.Dir = "python" // the directory of the driver
		if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "done" {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// TestRequestsOfNotebooks checks the answers to requests other than those that run code.
func TestRequestsOfNotebooks(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	for _, code := range []string{"value = 1", "other = 2", "value = 1", "%time 3"} {
		s.run(code)
	}
	for _, tt := range []struct{ kind, content, want string }{
		{"is_complete_request", `{"code":"1"}`, `{"status":"complete"}`},
		{"is_complete_request", `{"code":"if 1:"}`, `{"indent":"    ","status":"incomplete"}`},
		{"is_complete_request", `{"code":"a ="}`, `{"status":"invalid"}`},
		{"history_request", `{"hist_access_type":"tail","n":2}`, `{"history":[[0,3,"value = 1"],[0,4,"%time 3"]],"status":"ok"}`},
		{"history_request", `{"hist_access_type":"tail","n":1,"raw":false}`, `{"history":[[0,4,"get_ipython().run_line_magic('time', '3')"]],"status":"ok"}`},
		{"history_request", `{"hist_access_type":"tail"}`, `{"history":[[0,1,"value = 1"],[0,2,"other = 2"],[0,3,"value = 1"],[0,4,"%time 3"]],"status":"ok"}`},
		{"history_request", `{"hist_access_type":"tail","n":1,"output":true}`, `{"history":[[0,4,["%time 3","3"]]],"status":"ok"}`},
		{"history_request", `{"hist_access_type":"range","start":2,"stop":4}`, `{"history":[[0,2,"other = 2"],[0,3,"value = 1"]],"status":"ok"}`},
		{"history_request", `{"hist_access_type":"search","pattern":"value*"}`, `{"history":[[0,1,"value = 1"],[0,3,"value = 1"]],"status":"ok"}`},
		{"history_request", `{"hist_access_type":"search","pattern":"value*","unique":true}`, `{"history":[[0,3,"value = 1"]],"status":"ok"}`},
		{"history_request", `{"hist_access_type":"search","pattern":"*","n":1}`, `{"history":[[0,4,"%time 3"]],"status":"ok"}`},
		{"history_request", `{"hist_access_type":"search","pattern":"VALUE*"}`, `{"history":[],"status":"ok"}`},
		{"inspect_request", `{"code":"none_such","cursor_pos":3}`, `{"data":{},"found":false,"metadata":{},"status":"ok"}`},
	} {
		if got := s.answer(tt.kind, tt.content); got != tt.want {
			t.Errorf("%s %s: got %s, want %s", tt.kind, tt.content, got, tt.want)
		}
	}
	for _, tt := range []struct{ kind, content, want string }{
		{"complete_request", `{"code":"x = val","cursor_pos":7}`, `"cursor_end":7,"cursor_start":4,"matches":["value"]`},
		{"complete_request", `{"code":"x = val"}`, `"matches":["value"]`},
		{"complete_request", `{"code":"value y","cursor_pos":3}`, `"cursor_end":3,"cursor_start":0,"matches":["value"]`},
		{"complete_request", `{"code":"none_such","cursor_pos":9}`, `"cursor_end":9,"cursor_start":9,"matches":[]`},
		{"inspect_request", `{"code":"print(len","cursor_pos":9}`, `"found":true`},
		{"inspect_request", `{"code":"len"}`, `Return the number of items in a container`},
		{"other_request", `{}`, `"evalue":"other_request is not supported"`},
	} {
		if got := s.answer(tt.kind, tt.content); !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: got %s, want %s in it", tt.kind, tt.content, got, tt.want)
		}
	}
}

// answer returns the content of the reply to a request, with sorted keys.
func (s *session) answer(kind, content string) string {
	s.t.Helper()
	r := &Request{Header: jupyter.NewHeader(kind, "", ""), Content: json.RawMessage(content)}
	must.Do(s.t, s.client.Submit(r))
	reply := ""
	for {
		e := s.next()
		switch {
		case e.Request != r:
		case e.Channel == jupyter.Shell:
			var any map[string]any
			s.decode(e, &any)
			text, err := json.Marshal(any)
			must.Do(s.t, err)
			reply = string(text)
		case e.Type == "status" && strings.Contains(string(e.Content), `"idle"`):
			return reply
		}
	}
}

// TestCountOfCells checks which cells are counted, kept in the history and answered with a value.
func TestCountOfCells(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	for _, tt := range []struct {
		code          string
		store, silent bool
		count         int
		order, text   string
	}{
		{"1", true, false, 1, "status execute_input execute_result execute_reply status", "1"},
		{"2", false, false, 2, "status execute_input execute_result execute_reply status", "2"},
		{"3", true, true, 2, "status execute_reply status", ""},
		{"print(4)", true, true, 2, "status stream execute_reply status", ""},
		{"5;", true, false, 2, "status execute_input execute_reply status", ""},
		{"_, __", true, false, 3, "status execute_input execute_result execute_reply status", "(2, 1)"},
		{"In[1:]", true, false, 4, "status execute_input execute_result execute_reply status", "['1', '5;', '_, __', 'In[1:]']"},
		{"globals().clear()", true, false, 5, "status execute_input execute_reply status", ""},
		{"6", true, false, 6, "status execute_input execute_result execute_reply status", "6"},
	} {
		o := s.run(tt.code, func(r *jupyter.ExecuteRequest) { r.StoreHistory, r.Silent = tt.store, tt.silent })
		if got := strings.Join(o.order, " "); o.reply.ExecutionCount != tt.count || got != tt.order || o.text() != tt.text {
			t.Errorf("%q: got the count %d, %s and %q, want %d, %s and %q (%+v)", tt.code, o.reply.ExecutionCount, got, o.text(), tt.count, tt.order, tt.text, o.errors)
		}
	}
}
