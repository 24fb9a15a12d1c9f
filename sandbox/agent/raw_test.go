package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// ask sends a message unchanged, like code that goes past the functions in Python.
func ask(t *testing.T, s *stepCalls, message string) string {
	t.Helper()
	reply, err := s.input(t.Context(), bridgePrefix+message, false)
	must.Do(t, err)
	return reply
}

// rawCall makes one call with an unchanged document, and returns its reply.
func rawCall(t *testing.T, s *stepCalls, id int, name, document string) string {
	t.Helper()
	reply := ask(t, s, fmt.Sprintf("%d.{\"calls\":[[%d,%q]],\"waiting\":[]}\n%s", id, id, name, document))
	for reply == ".[]" {
		reply = ask(t, s, fmt.Sprintf(`%d.{"calls":[],"waiting":[%d]}`, id, id))
	}
	return reply
}

// okReply returns the reply that Python receives for a call.
func okReply(id int, document string) string { return fmt.Sprintf(".[[%d,\"ok\"]]\n%s", id, document) }

// errorReply returns the reply that Python receives for a refused call.
func errorReply(id int, kind, message string) string {
	return fmt.Sprintf(".[[%d,\"error\"]]\n%s", id, errorLine(ToolError{Type: kind, Message: message}))
}

type taken struct {
	A int     `py:"a"`
	B *string `py:"b"`
	C []int   `py:"c,omitempty"`
}

// TestRawArguments sends arguments that the functions in Python would have refused or could not
// have made. Only valid ones reach the tool.
func TestRawArguments(t *testing.T) {
	t.Parallel()
	var made atomic.Int32
	take := MustTool("take", "", func(context.Context, taken) (int, error) { return int(made.Add(1)), nil })
	var r records
	s := r.run(t, nil, take)
	const right = "ok"
	opaque := `{"$":"opaque","type":"m.T","repr":"T()","reason":"it is odd"}`
	for i, test := range []struct{ value, want string }{
		{`{"a":1}`, right},
		{`{"a":1,"b":null}`, right},
		{`{"c":[1,2],"b":"x","a":-1}`, right},
		{`{}`, `"a" is missing`},
		{`{"b":"x"}`, `"a" is missing`},
		{`{"A":1}`, `"a" is missing`},
		{`{"a":1,"d":1}`, `there is no parameter "d"`},
		{`{"a":1,"":1}`, `there is no parameter ""`},
		{`{"a":1,"d":` + opaque + `}`, `"d", a m.T, cannot be sent: it is odd: convert it`},
		{`{"a":` + opaque + `}`, `"a", a m.T, cannot be sent: it is odd: convert it`},
		{`{"a":1,"c":[` + opaque + `]}`, `an argument cannot be sent: convert it`},
		{opaque, `the value cannot be sent: it is odd: convert it`},
		{`{"$":"opaque","type":"m.T","repr":"T()","reason":""}`, `the value cannot be sent: convert it`},
		{`{"a":"1"}`, `["a"]`},
		{`{"a":1.5}`, `["a"]`},
		{`{"a":null}`, `["a"]`},
		{`{"a":[1]}`, `["a"]`},
		{`{"a":36893488147419103232}`, `["a"]`},
		{`{"a":1,"b":2}`, `["b"]`},
		{`{"a":1,"c":["x"]}`, `["c"]`},
		{`{"a":1,"c":{}}`, `["c"]`},
		{`{"$":"dict","items":[[1,2]]}`, ``},
		{`{"a":1,"a":2}`, ``},
		{`[1]`, ``},
		{`[["a",1]]`, ``},
		{`1`, ``},
		{`"a"`, ``},
		{`null`, ``},
		{`true`, ``},
		{`{"$":"no such kind"}`, ``},
		{`{"a":1`, ``},
		{`{"a":1}}`, ``},
		{`{"a":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`, ``},
	} {
		id, before := i+1, made.Load()
		got := rawCall(t, s, id, "take", `{"v":1,"value":`+test.value+`}`)
		if test.want == right {
			if want := okReply(id, fmt.Sprintf(`{"v":1,"value":%d}`, before+1)); got != want {
				t.Errorf("%s: got %s, want %s", test.value, got, want)
			}
			continue
		}
		if made.Load() != before {
			t.Errorf("%.80s: the tool was called", test.value)
		}
		refusal(t, fmt.Sprintf("%.80s", test.value), got, id, "TypeError", "wrong arguments: "+test.want)
	}
	before := made.Load()
	for i, document := range []string{"", "{", "null", "[]", `{"v":2,"value":{"a":1}}`, `{"v":1}`, `{"value":{"a":1}}`, `{"v":1,"value":{"a":1}} x`, "\xff"} {
		refusal(t, fmt.Sprintf("%q", document), rawCall(t, s, 100+i, "take", document), 100+i, "TypeError", "wrong arguments: ")
	}
	for i, name := range []string{"", "os", "Take", "take ", "tåke"} {
		refusal(t, fmt.Sprintf("%q", name), rawCall(t, s, 200+i, name, `{"v":1,"value":{"a":1}}`), 200+i, "NameError", fmt.Sprintf("the run has no tool %q", name))
	}
	refusal(t, "a long name", rawCall(t, s, 300, strings.Repeat("n", maxToolName+1), `{"v":1,"value":{}}`), 300, "NameError", `"`+strings.Repeat("n", maxToolName)+`…"`)
	// Each call has a document of its own.
	ask(t, s, `1.{"calls":[[400,"take"],[401,"take"]]}`+"\n{\"v\":1,\"value\":{}}\n{\"v\":1,\"value\":{\"b\":1,\"a\":1}}")
	s.bridge.work.Wait()
	if got := ask(t, s, `1.{"waiting":[400,401]}`); !strings.Contains(got, "is missing") || !strings.Contains(got, "cannot be stored in string") {
		t.Errorf("got %s, want a refusal of each document", got)
	}
	if n := made.Load(); n != before {
		t.Errorf("the tool was called %d times", n-before)
	}
}

// refusal checks that a call was refused, with a kind of error and a part of its text.
func refusal(t *testing.T, what, reply string, id int, kind, part string) {
	t.Helper()
	var got struct{ Type, Message string }
	document, ok := strings.CutPrefix(reply, fmt.Sprintf(".[[%d,\"error\"]]\n", id))
	if err := json.Unmarshal([]byte(document), &got); !ok || err != nil || got.Type != kind || !strings.Contains(got.Message, part) {
		t.Errorf("%s: got %.300s, want a %s with %q", what, reply, kind, part)
	}
}

// TestRawFinalAnswer checks that only a valid answer ends the run, and only the first.
func TestRawFinalAnswer(t *testing.T) {
	t.Parallel()
	var made atomic.Int32
	take := MustTool("take", "", func(context.Context, taken) (int, error) { return int(made.Add(1)), nil })
	var r records
	s := r.run(t, nil, take)
	ended := 0
	s.ended = func() { ended++ }
	for id, value := range []string{`{}`, `{"answer":1,"more":2}`, `{"Answer":1}`, `[1]`, `1`, `null`, `{"answer":{"$":"opaque","type":"m.T","repr":"","reason":""}}`} {
		refusal(t, value, rawCall(t, s, id, finalAnswer, `{"v":1,"value":`+value+`}`), id, "TypeError", "final_answer: wrong arguments: ")
	}
	if _, final := s.bridge.run.final(); final || ended != 0 {
		t.Fatal("a wrong answer ended the run")
	}
	for id, answer := range []string{"null", "2"} {
		if got, want := rawCall(t, s, 10+id, finalAnswer, `{"v":1,"value":{"answer":`+answer+`}}`), fmt.Sprintf(".[[%d,\"final\"]]\nnull", 10+id); got != want {
			t.Errorf("answer %s: got %s, want %s", answer, got, want)
		}
	}
	if got, want := rawCall(t, s, 20, "take", `{"v":1,"value":{"a":1}}`), ".[[20,\"final\"]]\nnull"; got != want || made.Load() != 0 {
		t.Errorf("a call after the answer: got %s, want %s and no call", got, want)
	}
	// Of two answers that arrive together, both are recorded before either reply is sent.
	together, err := state.NewValue(map[string]any{"answer": 3})
	must.Do(t, err)
	if status, _, err := s.record(together); status != "final" || err != nil || ended != 2 {
		t.Errorf("an answer that came together with the first: got %q, %v, want final", status, err)
	}
	if answer, _ := s.bridge.run.final(); answer.Kind() != state.KindNone {
		t.Errorf("got the answer %s, want the first one, None", answer.Bytes())
	}
}

// TestRawExchanges sends messages with faults outside the arguments, one exchange after the
// other.
func TestRawExchanges(t *testing.T) {
	t.Parallel()
	many := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat("7,", n), ",") + "]"
	}
	const malformed = "!the kernel's request is malformed"
	unreachable := func(id int) string {
		return errorReply(id, "Unreachable", "the step that made this call has ended")
	}
	for name, test := range map[string]struct{ messages, want []string }{
		"empty":           {[]string{""}, []string{malformed}},
		"no kind":         {[]string{"1"}, []string{malformed}},
		"another kind":    {[]string{"1!{}"}, []string{malformed}},
		"a number":        {[]string{strings.Repeat("1", 20) + ".{}"}, []string{".[]"}},
		"too long a one":  {[]string{strings.Repeat("1", 21) + ".{}"}, []string{malformed}},
		"no head":         {[]string{"1."}, []string{malformed + ": unexpected end of JSON input"}},
		"half a head":     {[]string{`1.{"calls":[`}, []string{malformed + ": unexpected end of JSON input"}},
		"a list":          {[]string{"1.[]"}, []string{malformed + ": json: …"}},
		"an object":       {[]string{`1.{"calls":{}}`}, []string{malformed + ": json: …"}},
		"no pair":         {[]string{`1.{"calls":[1]}`}, []string{malformed + ": json: …"}},
		"a negative id":   {[]string{`1.{"calls":[[-1,"take"]]}`}, []string{malformed + ": json: …"}},
		"a text as id":    {[]string{`1.{"calls":[["1","take"]]}`}, []string{malformed + ": json: …"}},
		"a number's name": {[]string{`1.{"calls":[[1,1]]}`}, []string{malformed + ": json: …"}},
		"too large an id": {[]string{`1.{"waiting":[18446744073709551616]}`}, []string{malformed + ": json: …"}},
		"the largest id":  {[]string{`1.{"waiting":[18446744073709551615]}`}, []string{".[[18446744073709551615,\"error\"]]\n…"}},
		"nothing":         {[]string{"1.{}"}, []string{".[]"}},
		"not made":        {[]string{`1.{"waiting":[7]}`}, []string{unreachable(7)}},
		"waiting twice":   {[]string{`1.{"waiting":[7,7]}`}, []string{unreachable(7)}},
		"many waiting":    {[]string{`1.{"waiting":` + many(2*maxCalls) + `}`}, []string{unreachable(7)}},
		"too many":        {[]string{`1.{"waiting":` + many(2*maxCalls+1) + `}`}, []string{"!more than 1024 calls at once"}},
		"far too many":    {[]string{`1.{"waiting":` + many(9*maxCalls) + `}`}, []string{malformed + ": the JSON has more than 8192 values"}},
		"in parts":        {[]string{`1+{"wait`, `1+ing":`, `1.[7]}`}, []string{"", "", unreachable(7)}},
		"other parts":     {[]string{`1+{"wait`, `2.{"waiting":[7]}`}, []string{"", unreachable(7)}},
		"parts once":      {[]string{`1.{}`, `1.{"waiting":[7]}`}, []string{".[]", unreachable(7)}},
		"no more":         {[]string{"1?", `1.{}`, "1?", "x?"}, []string{".", ".[]", ".", "."}},
	} {
		var r records
		s := r.run(t, nil)
		for i, message := range test.messages {
			begins, more := strings.CutSuffix(test.want[i], "…")
			if got := ask(t, s, message); !strings.HasPrefix(got, begins) || !more && got != begins {
				t.Errorf("%s, message %d: got %.200q, want %q", name, i, got, test.want[i])
			}
		}
	}
}

// TestRawRepeats checks that a call that arrives again is made once, that an abandoned one is
// cancelled, and that none is accepted after the step.
func TestRawRepeats(t *testing.T) {
	t.Parallel()
	var made atomic.Int32
	begun, given := make(chan struct{}), make(chan error, 1)
	take := MustTool("take", "", func(ctx context.Context, _ struct{}) (int, error) {
		made.Add(1)
		close(begun)
		<-ctx.Done()
		given <- context.Cause(ctx)
		return 0, ctx.Err()
	})
	var r records
	s := r.run(t, nil, take)
	const document = "\n{\"v\":1,\"value\":{}}"
	if got := ask(t, s, `1.{"calls":[[1,"take"],[1,"take"]]}`+document+document); got != ".[]" {
		t.Errorf("got %s, want no reply yet", got)
	}
	<-begun
	if got := ask(t, s, `2.{"calls":[[1,"take"]]}`+document); got != ".[]" {
		t.Errorf("got %s, want no reply yet", got)
	}
	if got := ask(t, s, `3.{"waiting":[1]}`); got != ".[]" {
		t.Errorf("got %s, want no reply yet", got)
	}
	select {
	case err := <-given:
		t.Errorf("a call for which code waits was given up: %v", err)
	default:
	}
	if got := ask(t, s, "4.{}"); got != ".[]" {
		t.Errorf("got %s, want no reply", got)
	}
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the call was cancelled", err)
	}
	s.bridge.work.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("the call was made %d times, want once", n)
	}
	if got, want := ask(t, s, `5.{"waiting":[1]}`), errorReply(1, "Unreachable", "the step that made this call has ended"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if records := s.end(); len(records) != 1 || records[0].Name != "take" || records[0].OK {
		t.Errorf("got %+v, want one record, of a call that failed", records)
	}
	if got, want := ask(t, s, `6.{"calls":[[9,"take"]]}`+document), "!the step has ended"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s.bridge.work.Wait()
	if n := made.Load(); n != 1 {
		t.Error("a call was made after the step")
	}
}

// TestRawLimits checks each limit of the bridge where it begins to refuse: the last that is
// allowed and the first that is not.
func TestRawLimits(t *testing.T) {
	t.Parallel()
	type text struct{ X string }
	document := func(n int) string {
		return `{"v":1,"value":{"X":"` + strings.Repeat("x", n-len(`{"v":1,"value":{"X":""}}`)) + `"}}`
	}
	result := func(n int) string { return strings.Repeat("x", n-len(`{"v":1,"value":""}`)) }
	size := 0
	var r records
	s := r.run(t, nil,
		MustTool("given", "", func(context.Context, text) (int, error) { return 1, nil }, WithToolLimits(ToolLimits{MaxArgumentBytes: 100})),
		MustTool("gives", "", func(context.Context, struct{}) (string, error) { return result(size), nil }, WithToolLimits(ToolLimits{MaxResultBytes: 100})),
		MustTool("twice", "", func(context.Context, struct{}) (int, error) { return 1, nil }, WithToolLimits(ToolLimits{MaxCalls: 2})),
		MustTool("free", "", func(context.Context, struct{}) (string, error) { return result(size), nil }),
	)
	const none = `{"v":1,"value":{}}`
	id := 0
	call := func(name, document, refused string) {
		t.Helper()
		id++
		got := rawCall(t, s, id, name, document)
		if ok := strings.HasPrefix(got, okReply(id, "{")); ok != (refused == "") {
			t.Errorf("%s: got %.200s, want %q", name, got, refused)
		}
		if refused != "" {
			refusal(t, name, got, id, "LimitError", refused)
		}
	}
	call("given", document(99), "")
	call("given", document(100), "")
	call("given", document(101), "the arguments of given have 101 bytes, more than 100")
	for size = 99; size < 101; size++ {
		call("gives", none, "")
		call("free", none, "")
	}
	call("gives", none, "the result of gives has 101 bytes, more than 100")
	call("free", none, "")
	call("twice", none, "")
	call("twice", none, "")
	call("twice", none, "it was called 2 times")
	clear(s.calls)
	s.calls[0] = &bridgedCall{cancel: func() {}, reply: make([]byte, maxWaiting-101)}
	if !s.fits(101) || s.fits(102) {
		t.Error("replies of exactly maxWaiting bytes do not wait, or longer ones do")
	}
	for size, want := range map[int]int{maxExchange / 2: 1, maxExchange/2 - 1: 2, maxExchange: 1} {
		for id := range uint64(3) {
			s.calls[id] = &bridgedCall{cancel: func() {}, reply: make([]byte, size)}
		}
		if text, _ := s.replies(); strings.Count(text, "\n") != want {
			t.Errorf("one exchange takes %d replies of %d bytes, want %d", strings.Count(text, "\n"), size, want)
		}
	}
	for n := len(s.audit); n < maxRecords-1; n++ {
		s.audit = append(s.audit, toolRecord{})
	}
	call("free", none, "")
	call("free", none, "")
	if n := len(s.audit); n != maxRecords {
		t.Errorf("%d calls are recorded, want %d", n, maxRecords)
	}
}

// TestRawCallsAtOnce checks how many calls one exchange may bring.
func TestRawCallsAtOnce(t *testing.T) {
	t.Parallel()
	var r records
	release := make(chan struct{})
	s := r.run(t, nil, MustTool("free", "", func(context.Context, struct{}) (int, error) { <-release; return 1, nil }))
	var heads []string
	for id := range maxCalls + 1 {
		heads = append(heads, fmt.Sprintf(`[%d,"free"]`, id))
	}
	got := ask(t, s, `1.{"calls":[`+strings.Join(heads, ",")+"]}"+strings.Repeat("\n{\"v\":1,\"value\":{}}", maxCalls+1))
	close(release)
	refusal(t, "one call too many", got, maxCalls, "LimitError", "more than 1024 calls are under way")
	s.bridge.work.Wait()
	if ended := s.end(); len(ended) != maxCalls || !slices.ContainsFunc(ended, func(r toolRecord) bool { return r.OK }) {
		t.Errorf("%d calls were made, want %d", len(ended), maxCalls)
	}
}

// TestRawParts checks the bound of a message in parts, and that a long reply leaves in parts that
// do not end within a character.
func TestRawParts(t *testing.T) {
	t.Parallel()
	var r records
	s := r.run(t, nil)
	if got := ask(t, s, "1+"+strings.Repeat("x", maxExchange)); got != "" {
		t.Errorf("got %q, want all of it taken", got)
	}
	if got, want := ask(t, s, "1+x"), "!the arguments have more than 67108864 bytes"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := ask(t, s, "1.{}"); got != ".[]" {
		t.Errorf("got %q, want that nothing is left of what was too much", got)
	}
	for _, long := range []string{"", "x", strings.Repeat("x", replyPart), strings.Repeat("x", replyPart+1), strings.Repeat("x", replyPart-1) + "é", strings.Repeat("€", replyPart)} {
		s.out = long
		var all strings.Builder
		reply := "+"
		for reply[0] == '+' {
			reply = ask(t, s, "1?")
			if !utf8.ValidString(reply) || len(reply) > 1+replyPart {
				t.Errorf("a part has %d bytes, or a cut character", len(reply)-1)
			}
			if first := all.Len() == 0; first && (reply[0] == '.') != (len(long) <= replyPart) {
				t.Errorf("%d bytes: the first part begins with %q", len(long), reply[0])
			}
			all.WriteString(reply[1:])
		}
		if all.String() != long {
			t.Errorf("got %d bytes in parts, want the %d of the reply", all.Len(), len(long))
		}
	}
}

// TestRawInput checks that other questions go to Params.Stdin unchanged.
func TestRawInput(t *testing.T) {
	t.Parallel()
	var r records
	s := r.run(t, nil)
	if _, err := s.input(t.Context(), "name? ", false); !errors.Is(err, io.EOF) {
		t.Errorf("without Stdin: got %v, want io.EOF", err)
	}
	s.bridge.run.params.Stdin = func(_ context.Context, prompt string, password bool) (string, error) {
		return fmt.Sprint(prompt, password), nil
	}
	for _, password := range []bool{true, false} {
		if got, err := s.input(t.Context(), "e2bctl:1.{}", password); err != nil || got != fmt.Sprint("e2bctl:1.{}", password) {
			t.Errorf("got %q, %v, want the question as it is", got, err)
		}
	}
}

// TestTimeOfAnExchange checks how long the answer to an exchange is delayed: not at all if there is nothing to wait for,
// until the first call has ended, and otherwise for a moment that doubles while nothing ends, up to a bound.
func TestTimeOfAnExchange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r records
		s := r.run(t, nil,
			MustTool("hang", "", func(ctx context.Context, _ struct{}) (int, error) { <-ctx.Done(); return 0, ctx.Err() }),
			MustTool("end", "", func(context.Context, struct{}) (int, error) { <-time.After(time.Millisecond); return 1, nil }))
		const document = "\n{\"v\":1,\"value\":{}}"
		const waits = `1.{"waiting":[1]}`
		for i, step := range []struct {
			message string
			want    time.Duration
		}{
			{"1.{}", 0},
			{`1.{"calls":[[1,"hang"]]}` + document, 2 * time.Millisecond},
			{waits, 4 * time.Millisecond}, {waits, 8 * time.Millisecond}, {waits, 16 * time.Millisecond}, {waits, 32 * time.Millisecond},
			{waits, longestMoment}, {waits, longestMoment},
			{`1.{"calls":[[2,"end"]],"waiting":[1]}` + document, time.Millisecond},
			{waits, 2 * time.Millisecond}, // a new call begins the moments anew
			{`1.{"waiting":[1,3]}`, 0},    // the refusal of a call that is unknown
			{"1.{}", 0},
		} {
			start := time.Now()
			ask(t, s, step.message)
			if took := time.Since(start); took != step.want {
				t.Errorf("exchange %d, %.40s: it took %v, want %v", i, step.message, took, step.want)
			}
		}
		s.bridge.work.Wait()
	})
}

// TestEndOfAnExchange checks that the answer to an exchange is not delayed after the end of its context.
func TestEndOfAnExchange(t *testing.T) {
	t.Parallel()
	var r records
	s := r.run(t, nil)
	s.calls[1] = &bridgedCall{cancel: func() {}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 5 { // a machine that stands still for the longest moment may end that first
		s.idle = 16
		if reply := s.finished(ctx, false); reply != "[]" {
			t.Fatalf("got %q, want no reply", reply)
		}
		if s.idle == 16 {
			return
		}
	}
	t.Error("the answers waited for the longest moment")
}

// TestContextsOfCallsEnd checks that the context of a call ends with the call.
func TestContextsOfCallsEnd(t *testing.T) {
	t.Parallel()
	var given context.Context
	keep := func(ctx context.Context, _ struct{}) (int, error) { given = ctx; return 1, ctx.Err() }
	var r records
	s := r.run(t, nil, MustTool("keep", "", keep))
	rawCall(t, s, 1, "keep", `{"v":1,"value":{}}`)
	s.bridge.work.Wait()
	if given.Err() == nil {
		t.Error("the context of a run's call goes on")
	}
	box, err := NewToolbox(MustTool("keep", "", keep, WithToolLimits(ToolLimits{Timeout: time.Hour})))
	must.Do(t, err)
	_, err = box.Call(t.Context(), "keep", nil)
	must.Do(t, err)
	box.caller.work.Wait()
	if given.Err() == nil {
		t.Error("the context of a toolbox's call goes on")
	}
}

// TestRepliesThatDoNotFit checks that a result becomes an error if it would exceed the bound of the results that wait, and
// that an error is told as it is.
func TestRepliesThatDoNotFit(t *testing.T) {
	t.Parallel()
	var r records
	s := r.run(t, nil,
		MustTool("give", "", func(context.Context, struct{}) (int, error) { return 1, nil }),
		MustTool("fail", "", func(context.Context, struct{}) (int, error) { return 0, errors.New("no luck") }))
	const result = `{"v":1,"value":1}`
	waiting := make([]byte, maxWaiting+1)
	for _, tt := range []struct {
		tool    string
		waiting int
		want    string
	}{
		{"give", maxWaiting - len(result), result},
		{"give", maxWaiting - len(result) + 1, "the results that code has not fetched yet would have more than 268435456 bytes"},
		{"fail", maxWaiting + 1, "fail: no luck"},
	} {
		s.calls[7] = &bridgedCall{cancel: func() {}, reply: waiting[:tt.waiting]}
		if got := s.answer(t, tt.tool, map[string]any{}); !strings.Contains(got, tt.want) {
			t.Errorf("%s beside %d bytes: got %s, want %s in it", tt.tool, tt.waiting, got, tt.want)
		}
	}
}

// TestFinalTool checks the signature and the text that describe final_answer.
func TestFinalTool(t *testing.T) {
	t.Parallel()
	if got, want := finalTool.Signature(), "final_answer(answer: Any) -> None"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := finalTool.Doc(), "Gives the final answer of the task and ends the run.\n\nArgs:\n    answer (Any)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
