package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pyshim"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/state"
)

// plannedHost answers the requests to a kernel as planned, and notes the functions that they call.
type plannedHost struct {
	failingHost // its error is that of uploads and of files

	t     *testing.T
	plan  []any // for each request: the values by key, a *kernelCallError of the code or of the only key, or another error
	asked []string
	file  *closingReader // nil: there is none
}

// closingReader counts how often it was closed.
type closingReader struct {
	io.Reader
	closed int
}

func (r *closingReader) Close() error { r.closed++; return nil }

func (h *plannedHost) open(context.Context, string) (io.ReadCloser, error) {
	if h.file == nil {
		return nil, h.err
	}
	return h.file, nil
}

func (h *plannedHost) execute(_ context.Context, _ string, request jupyter.ExecuteRequest, _ kernelconn.Handler) (jupyter.ExecuteReply, error) {
	var called []string
	for _, key := range slices.Sorted(maps.Keys(request.UserExpressions)) {
		_, name, _ := strings.Cut(request.UserExpressions[key], `"_e2bctl_`)
		name, _, _ = strings.Cut(name, "(")
		called = append(called, strings.Replace(name, `"].`, ".", 1))
	}
	if request.Code != "" {
		called = append(called, "code")
	}
	h.asked = append(h.asked, strings.Join(called, " "))
	if len(h.plan) == 0 {
		h.t.Errorf("got the request %q, want none any longer", called)
		return jupyter.ExecuteReply{}, errors.New("nothing is planned")
	}
	next := h.plan[0]
	h.plan = h.plan[1:]
	switch next := next.(type) {
	case *kernelCallError:
		if request.Code != "" {
			return jupyter.ExecuteReply{Status: "error", ErrorContent: jupyter.ErrorContent{Name: next.name, Value: next.value}}, nil
		}
		values := map[string]any{}
		for key := range request.UserExpressions {
			values[key] = next
		}
		return replyOf(h.t, values), nil
	case map[string]any:
		return replyOf(h.t, next), nil
	}
	return jupyter.ExecuteReply{}, next.(error)
}

// replyOf returns the reply with the values of expressions; a *kernelCallError is the exception of its expression.
func replyOf(t *testing.T, values map[string]any) jupyter.ExecuteReply {
	t.Helper()
	reply := jupyter.ExecuteReply{Status: "ok", UserExpressions: map[string]jupyter.ExpressionReply{}}
	for key, value := range values {
		if raised, ok := value.(*kernelCallError); ok {
			reply.UserExpressions[key] = jupyter.ExpressionReply{Status: "error", ErrorContent: jupyter.ErrorContent{Name: raised.name, Value: raised.value}}
			continue
		}
		text, err := json.Marshal(string(mustValue(t, value).Bytes()))
		must.Do(t, err)
		reply.UserExpressions[key] = jupyter.ExpressionReply{Status: "ok", Data: map[string]json.RawMessage{pyshim.MIME: text}}
	}
	return reply
}

// says is the answer of one function.
func says(fields ...any) map[string]any {
	value := map[string]any{}
	for i := 0; i < len(fields); i += 2 {
		value[fmt.Sprint(fields[i])] = fields[i+1]
	}
	return map[string]any{valueKey: value}
}

var (
	errMissing      = &kernelCallError{"KeyError", "'_e2bctl_state'"}
	errGuardMissing = &kernelCallError{"KeyError", "'_e2bctl_guard'"}
	errRaised       = &kernelCallError{"ValueError", "no"}
	errGone         = errors.New("the connection is gone")
)

// framed returns a frame as a kernel sends it, and the size of its head.
func framed(t *testing.T, st *state.State) (frame []byte, head int) {
	t.Helper()
	r, err := frameOf(st.Entries(), nil)
	must.Do(t, err)
	frame, err = io.ReadAll(r)
	must.Do(t, err)
	return frame, bytes.IndexByte(frame, '\n') + 1
}

// holding returns a state with one variable.
func holding(t *testing.T, name string, value any) *state.State {
	t.Helper()
	st := state.New()
	set(t, st, name, value)
	return st
}

// TestSendAsks checks each request that sending a state makes, and that an error of any of them ends it and leaves no
// wrong knowledge of the kernel.
func TestSendAsks(t *testing.T) {
	t.Parallel()
	one, two := holding(t, "x", 1), holding(t, "x", 2)
	knows := map[string]knownValue{"x": knownOf(one.Entries()[0])}
	hello := says("token", "t", "directory", "/tmp/e2bctl-1")
	changed := says("changed", []any{map[string]any{"name": "x", "kind": "int", "size": 1, "hash": "other"}})
	const begin, load, asksChanged = "state.begin", "state.load", "state.changed"
	for name, tt := range map[string]struct {
		st     *state.State
		rule   ConflictRule
		plan   []any
		broken error // of the upload
		asked  []string
		want   string // part of the error
		token  string // that is known afterwards
		knows  bool   // the value in st
	}{
		"no state":                    {nil, KeepSandbox, []any{hello}, nil, []string{begin}, "", "t", false},
		"no state to overwrite":       {nil, Overwrite, []any{hello}, nil, []string{begin}, "", "t", false},
		"no modules":                  {nil, KeepSandbox, []any{errMissing, says(), hello}, nil, []string{begin, "code", begin}, "", "t", false},
		"modules that fail":           {nil, KeepSandbox, []any{errMissing, errRaised}, nil, []string{begin, "code"}, "ValueError: no", "t", true},
		"modules that do not arrive":  {nil, KeepSandbox, []any{errMissing, errGone}, nil, []string{begin, "code"}, errGone.Error(), "t", true},
		"modules that raise":          {nil, KeepSandbox, []any{errMissing, says(), errRaised}, nil, []string{begin, "code", begin}, "ValueError: no", "t", true},
		"a kernel that raises":        {nil, KeepSandbox, []any{errRaised}, nil, []string{begin}, "ValueError: no", "t", true},
		"a kernel that is gone":       {nil, KeepSandbox, []any{errGone}, nil, []string{begin}, errGone.Error(), "t", true},
		"a known value":               {one, KeepSandbox, []any{hello}, nil, []string{begin}, "", "t", true},
		"a known value to overwrite":  {one, Overwrite, []any{hello, says()}, nil, []string{begin, asksChanged}, "", "t", true},
		"a changed one to keep":       {one, KeepSandbox, []any{hello}, nil, []string{begin}, "", "t", true},
		"a changed one to overwrite":  {one, Overwrite, []any{hello, changed, says("token", "u")}, nil, []string{begin, asksChanged, load}, "", "u", true},
		"a changed one that may not":  {one, FailOnConflict, []any{hello, changed}, nil, []string{begin, asksChanged}, "code changed 1 variables", "t", true},
		"changes that fail":           {one, Overwrite, []any{hello, errRaised}, nil, []string{begin, asksChanged}, "ValueError: no", "t", true},
		"another value":               {two, KeepSandbox, []any{hello, says("token", "u")}, nil, []string{begin, load}, "", "u", true},
		"another value, not uploaded": {two, KeepSandbox, []any{hello}, errGone, []string{begin}, errGone.Error(), "t", false},
		"another value, not loaded":   {two, KeepSandbox, []any{hello, errRaised}, nil, []string{begin, load}, "ValueError: no", "", false},
		"another value, perhaps":      {two, KeepSandbox, []any{hello, errGone}, nil, []string{begin, load}, errGone.Error(), "", false},
		"blobs that are missing":      {two, KeepSandbox, []any{hello, says("missing", []any{"h"}), says("token", "u")}, nil, []string{begin, load, load}, "", "u", true},
		"blobs that stay missing":     {two, KeepSandbox, []any{hello, says("missing", []any{"h"}), errRaised}, nil, []string{begin, load, load}, "ValueError: no", "", false},
		"another kernel":              {one, KeepSandbox, []any{says("token", "v"), says("token", "w")}, nil, []string{begin, load}, "", "w", true},
	} {
		h := &plannedHost{failingHost: failingHost{tt.broken}, t: t, plan: tt.plan}
		c := &runContext{token: "t", known: maps.Clone(knows)}
		if strings.HasPrefix(name, "no ") {
			c.token, c.known = "", nil
		}
		err := c.send(t.Context(), h, tt.st, tt.rule)
		if fmt.Sprint(err) == "<nil>" != (tt.want == "") || tt.want != "" && !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: got error %v, want %q", name, err, tt.want)
		}
		if diff := cmp.Diff(tt.asked, h.asked); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", name, diff)
		}
		if c.token != tt.token || len(h.plan) > 0 {
			t.Errorf("%s: the token is %q, want %q; %d answers are left", name, c.token, tt.token, len(h.plan))
		}
		if known := len(c.unsent(tt.st)) == 0 && tt.st != nil || tt.st == nil && c.known["x"].hash == knows["x"].hash; known != tt.knows {
			t.Errorf("%s: the value counts as known: %v, want %v", name, known, tt.knows)
		}
	}
}

// TestAnswersOfGet checks what a kernel may answer to a request for a value, and that its file is closed and removed.
func TestAnswersOfGet(t *testing.T) {
	t.Parallel()
	frame, head := framed(t, holding(t, "x", 5))
	both := holding(t, "x", 5)
	set(t, both, "y", 6)
	two, twoHead := framed(t, both)
	none, noneHead := framed(t, state.New())
	for name, tt := range map[string]struct {
		plan []any
		file []byte
		want string // the value, or a part of the error
	}{
		"a value":                  {[]any{says("found", true, "frame", frame, "head", head)}, nil, `{"v":1,"value":5}`},
		"two values":               {[]any{says("found", true, "frame", two, "head", twoHead)}, nil, errFrame.Error()},
		"none":                     {[]any{says("found", true, "frame", none, "head", noneHead)}, nil, errFrame.Error()},
		"nothing":                  {[]any{says("found", false, "frame", frame, "head", head)}, nil, state.ErrNotFound.Error()},
		"an exception":             {[]any{errRaised}, nil, "ValueError: no"},
		"a file":                   {[]any{says("found", true, "file", "f", "head", head, "size", len(frame)), says()}, frame, `{"v":1,"value":5}`},
		"a file that stays":        {[]any{says("found", true, "file", "f", "head", head, "size", len(frame)), errRaised}, frame, "ValueError: no"},
		"a file that is cut off":   {[]any{says("found", true, "file", "f", "head", head, "size", len(frame))}, frame[:len(frame)-1], io.ErrUnexpectedEOF.Error()},
		"a file that is not there": {[]any{says("found", true, "file", "f", "head", head, "size", len(frame))}, nil, errGone.Error()},
	} {
		h := &plannedHost{failingHost: failingHost{errGone}, t: t, plan: tt.plan}
		if tt.file != nil {
			h.file = &closingReader{Reader: bytes.NewReader(tt.file)}
		}
		v, err := (&runContext{directory: "/tmp/e2bctl-1"}).get(t.Context(), h, "x")
		got := string(v.Bytes())
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) || (err == nil) != strings.HasPrefix(tt.want, "{") || len(h.plan) > 0 {
			t.Errorf("%s: got %s, error %v and %d answers left, want %s", name, v.Bytes(), err, len(h.plan), tt.want)
		}
		if h.file != nil && h.file.closed != 1 {
			t.Errorf("%s: the file was closed %d times, want once", name, h.file.closed)
		}
	}
}

// TestAnswersOfPull checks what a kernel may answer to a request for changes, and that changes that it does not know to
// have arrived are asked for again.
func TestAnswersOfPull(t *testing.T) {
	t.Parallel()
	frame, head := framed(t, holding(t, "x", 2))
	builtin := bytes.Replace(frame, []byte(`"x"`), []byte(`"len"`), 1)
	changes := func(frame []byte, head int) map[string]any {
		return says("token", "u", "frame", frame, "head", head, "deleted", []any{"gone"})
	}
	for name, tt := range map[string]struct {
		plan        []any
		want        string // part of the error
		names       []string
		token       string
		knows, gone bool // it knows the new value, and that the other variable is gone
	}{
		"nothing":        {[]any{says("token", "u")}, "", []string{"gone", "x"}, "t", false, false},
		"an exception":   {[]any{errRaised}, "ValueError: no", []string{"gone", "x"}, "t", false, false},
		"changes":        {[]any{changes(frame, head), says()}, "", []string{"x"}, "u", true, true},
		"half of them":   {[]any{changes(frame[:len(frame)-1], head)}, errFrame.Error(), []string{"gone", "x"}, "t", false, false},
		"not recorded":   {[]any{changes(frame, head), errRaised}, "ValueError: no", []string{"x"}, "t", false, false},
		"a builtin name": {[]any{changes(builtin, head+2), says()}, "", []string{"x"}, "u", false, true},
	} {
		h := &plannedHost{t: t, plan: tt.plan}
		st := holding(t, "x", 1)
		set(t, st, "gone", 1)
		c := &runContext{token: "t", known: map[string]knownValue{"gone": {}}}
		err := c.pull(t.Context(), h, st)
		if (err == nil) != (tt.want == "") || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: got error %v, want %q", name, err, tt.want)
		}
		if diff := cmp.Diff(tt.names, st.Names()); diff != "" {
			t.Errorf("%s: names (-want +got):\n%s", name, diff)
		}
		_, known := c.known["x"]
		_, there := c.known["gone"]
		if c.token != tt.token || known != tt.knows || there == tt.gone || len(h.plan) > 0 {
			t.Errorf("%s: token %q, the new value is known: %v, the other: %v, %d answers are left", name, c.token, known, there, len(h.plan))
		}
	}
}

// TestChangesAreSorted checks that changes and conflicts are sorted by name, whatever the order of the kernel, and that
// only new variables with the name of a builtin are left out.
func TestChangesAreSorted(t *testing.T) {
	t.Parallel()
	change := func(name string, deleted bool) map[string]any {
		return map[string]any{"name": name, "kind": "int", "size": 3, "hash": "h", "deleted": deleted}
	}
	answer := says("changed", []any{change("b", false), change("len", true), change("id", false), change("a", true)})
	r := &Run{context: &runContext{}, host: &plannedHost{t: t, plan: []any{answer, errMissing}}, calls: map[*inFlight]struct{}{}}
	got, err := r.Changed(t.Context())
	must.Do(t, err)
	want := []Change{{"a", state.KindInt, 3, true}, {"b", state.KindInt, 3, false}, {"len", state.KindInt, 3, true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := r.Changed(t.Context()); !errors.Is(err, sandbox.ErrKernelDied) {
		t.Errorf("without the modules: got error %v, want %v", err, sandbox.ErrKernelDied)
	}
	st := holding(t, "b", 1)
	set(t, st, "a", 1)
	c := &runContext{known: map[string]knownValue{"a": {}, "b": {}}}
	err = c.resolve(t.Context(), &plannedHost{t: t, plan: []any{answer}}, st, FailOnConflict)
	conflict, _ := errors.AsType[*ConflictError](err)
	if conflict == nil || cmp.Diff([]string{"a", "b"}, conflict.Names) != "" {
		t.Errorf("got %v, want conflicts of a and b", err)
	}
}

// TestPrepareAsks checks each request with which a run prepares a kernel: one if the kernel is known to have everything, and
// otherwise one for each part. An error of any of them ends the preparation.
func TestPrepareAsks(t *testing.T) {
	t.Parallel()
	hello := says("token", "t", "directory", "/tmp/e2bctl-1")
	known := map[string]any{"known": true}
	tools := func(fields ...any) map[string]any { return map[string]any{toolsKey: says(fields...)[valueKey]} }
	all := func(token string, guard any, tools map[string]any) map[string]any {
		return map[string]any{beginKey: map[string]any{"token": token, "directory": "/tmp/e2bctl-1"}, guardKey: guard, toolsKey: tools}
	}
	const begin, place, end, arm = "state.begin", "tools.begin", "tools.end", "guard.arm"
	for name, tt := range map[string]struct {
		token string
		guard *Guard
		plan  []any
		asked []string
		want  string // part of the error
	}{
		"a new kernel":              {"", nil, []any{hello, tools("known", true)}, []string{begin, place}, ""},
		"new tools":                 {"", nil, []any{hello, tools("known", false), tools("known", true)}, []string{begin, place, place}, ""},
		"a new kernel, guarded":     {"", &Guard{}, []any{hello, says(), tools("known", true)}, []string{begin, arm, place}, ""},
		"a kernel that is gone":     {"", nil, []any{errGone}, []string{begin}, errGone.Error()},
		"tools that raise":          {"", nil, []any{hello, errRaised, tools()}, []string{begin, place, end}, "ValueError: no"},
		"tools that do not arrive":  {"", &Guard{}, []any{hello, says(), errGone, errGone}, []string{begin, arm, place, "guard.disarm " + end}, errGone.Error()},
		"specs that do not arrive":  {"", nil, []any{hello, tools("known", false), errGone, tools()}, []string{begin, place, place, end}, errGone.Error()},
		"a name that is taken":      {"", nil, []any{hello, tools("known", true, "taken", []any{"x"}), tools()}, []string{begin, place, end}, `the tool "x" has the name`},
		"a guard that raises":       {"", &Guard{}, []any{hello, errRaised}, []string{begin, arm}, "agent: guard: ValueError: no"},
		"a guard that is lost":      {"", &Guard{}, []any{hello, errGone}, []string{begin, arm}, errGone.Error()},
		"a guard to install":        {"", &Guard{}, []any{hello, errGuardMissing, says(), says(), tools("known", true)}, []string{begin, arm, "code", arm, place}, ""},
		"a guard not installed":     {"", &Guard{}, []any{hello, errGuardMissing, errRaised}, []string{begin, arm, "code"}, "ValueError: no"},
		"an installed guard raises": {"", &Guard{}, []any{hello, errGuardMissing, says(), errRaised}, []string{begin, arm, "code", arm}, "agent: guard: ValueError: no"},
		"a known kernel":            {"t", nil, []any{all("t", nil, known)}, []string{begin + " " + place}, ""},
		"a known kernel, guarded":   {"t", &Guard{}, []any{all("t", nil, known)}, []string{begin + " " + arm + " " + place}, ""},
		"a known kernel is gone":    {"t", nil, []any{errGone}, []string{begin + " " + place}, errGone.Error()},
		"another guard": {
			"t", &Guard{}, []any{all("t", errRaised, known), tools(), hello, errRaised},
			[]string{begin + " " + arm + " " + place, end, begin, arm}, "agent: guard: ValueError: no",
		},
		"another kernel": {
			"t", nil, []any{all("u", nil, known), tools(), hello, tools("known", true)}, []string{begin + " " + place, end, begin, place}, "",
		},
		"other tools": {
			"t", nil, []any{all("t", nil, map[string]any{"known": false}), tools(), hello, tools("known", false), tools("known", true)},
			[]string{begin + " " + place, end, begin, place, place}, "",
		},
		"a name that was taken since": {
			"t", nil, []any{all("t", nil, map[string]any{"known": true, "taken": []any{"x"}}), tools(), hello, tools("known", true, "taken", []any{"x"}), tools()},
			[]string{begin + " " + place, end, begin, place, end}, `the tool "x" has the name`,
		},
		"another kernel that is gone": {"t", nil, []any{all("u", nil, known), errGone}, []string{begin + " " + place, end}, errGone.Error()},
	} {
		h := &plannedHost{t: t, plan: tt.plan}
		r, err := newRun(&runs{}, h, &runContext{token: tt.token}, Params{Guard: tt.guard})
		must.Do(t, err)
		err = r.prepare(t.Context())
		if (err == nil) != (tt.want == "") || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: got error %v, want %q", name, err, tt.want)
		}
		if diff := cmp.Diff(tt.asked, h.asked); diff != "" || len(h.plan) > 0 {
			t.Errorf("%s: %d answers are left; requests (-want +got):\n%s", name, len(h.plan), diff)
		}
		if err == nil && (r.context.token != "t" || r.context.directory != "/tmp/e2bctl-1") {
			t.Errorf("%s: got the token %q and the directory %q", name, r.context.token, r.context.directory)
		}
	}
}
