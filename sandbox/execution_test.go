package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

func display(kind, id, text string) *jupyter.Message {
	content := fmt.Sprintf(`{"data":{"text/plain":%q},"transient":{"display_id":%q}}`, text, id)
	return &jupyter.Message{Channel: jupyter.IOPub, Header: jupyter.Header{MsgType: kind}, Content: []byte(content)}
}

func printed(stream, text string) *jupyter.Message {
	content, _ := json.Marshal(jupyter.StreamContent{Name: stream, Text: text})
	return &jupyter.Message{Channel: jupyter.IOPub, Header: jupyter.Header{MsgType: "stream"}, Content: content}
}

func cleared(wait bool) *jupyter.Message {
	return &jupyter.Message{Channel: jupyter.IOPub, Header: jupyter.Header{MsgType: "clear_output"}, Content: fmt.Appendf(nil, `{"wait":%v}`, wait)}
}

func collect(t *testing.T, c *collector, messages ...*jupyter.Message) {
	t.Helper()
	for _, m := range messages {
		must.Do(t, c.message(m))
	}
}

func TestUpdatesAndClears(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		messages []*jupyter.Message
		want     []string
	}{
		"an update replaces":                    {[]*jupyter.Message{display("display_data", "a", "1"), display("update_display_data", "a", "2")}, []string{"2"}},
		"all of that name so far":               {[]*jupyter.Message{display("display_data", "a", "1"), display("display_data", "a", "2"), display("update_display_data", "a", "3"), display("display_data", "a", "4")}, []string{"3", "3", "4"}},
		"not others":                            {[]*jupyter.Message{display("display_data", "", "1"), display("display_data", "b", "2"), display("update_display_data", "", "3"), display("update_display_data", "a", "4")}, []string{"1", "2"}},
		"a clear takes away":                    {[]*jupyter.Message{display("display_data", "a", "1"), cleared(false), display("update_display_data", "a", "2")}, nil},
		"one that waits, when more comes":       {[]*jupyter.Message{display("display_data", "", "1"), cleared(true), display("display_data", "", "2")}, []string{"2"}},
		"output is more":                        {[]*jupyter.Message{display("display_data", "", "1"), cleared(true), printed("stdout", "x")}, nil},
		"without more it waits for ever":        {[]*jupyter.Message{display("display_data", "", "1"), cleared(true)}, []string{"1"}},
		"what is printed is not taken away":     {[]*jupyter.Message{printed("stdout", "x"), cleared(false), display("execute_result", "", "'v'")}, []string{"v"}},
		"an update while a clear waits is none": {[]*jupyter.Message{display("display_data", "a", "1"), cleared(true), display("update_display_data", "a", "2")}, []string{"2"}},
	} {
		c := newCollector(&RunCodeParams{})
		collect(t, c, test.messages...)
		var got []string
		e := c.finished()
		for _, r := range e.Results {
			got = append(got, r.Text())
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if strings.HasPrefix(name, "what is printed") && (e.Stdout != "x" || len(e.Logs) != 1) {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// A representation that is None counts as missing, over either transport.
func TestRepresentationThatIsNone(t *testing.T) {
	t.Parallel()
	c := newCollector(&RunCodeParams{})
	nothing := `{"data":{"text/html":null,"a/b":null,"text/plain":"x"},"transient":{"display_id":"d"}}`
	for _, kind := range []string{"display_data", "update_display_data"} {
		collect(t, c, &jupyter.Message{Channel: jupyter.IOPub, Header: jupyter.Header{MsgType: kind}, Content: []byte(nothing)})
	}
	must.Do(t, c.line([]byte(`{"type":"result","text":"x","html":null,"extra":{"a/b":null},"is_main_result":false}`)))
	for i, r := range c.finished().Results {
		if diff := cmp.Diff([]string{"text/plain"}, r.Formats()); diff != "" {
			t.Errorf("%d: %s", i, diff)
		}
	}
}

func TestResultsAreBounded(t *testing.T) {
	t.Parallel()
	c := newCollector(&RunCodeParams{})
	told := 0
	c.event = func(CodeEvent) error { told++; return nil }
	shown, updated, value := display("display_data", "a", "shown"), display("update_display_data", "a", "updated"), display("execute_result", "", "'value'")
	const n = 4 * maxResults
	for range n {
		collect(t, c, shown, updated)
	}
	collect(t, c, value)
	e := c.finished()
	if len(e.Results) != maxResults+1 || e.ResultsDropped != n-maxResults || !e.Truncated() {
		t.Fatalf("%d results, %d dropped, truncated %v, want %d, %d and true", len(e.Results), e.ResultsDropped, e.Truncated(), maxResults+1, n-maxResults)
	}
	if e.Text() != "value" || e.Results[0].Text() != "updated" {
		t.Errorf("text %q, first result %q, want \"value\" and \"updated\"", e.Text(), e.Results[0].Text())
	}
	if told != 2*n+1 {
		t.Errorf("%d events, want %d", told, 2*n+1)
	}

	c = newCollector(&RunCodeParams{})
	c.size = maxResultBytes - 4<<20 // as if the rest had come before, which only takes time
	large := display("display_data", "", strings.Repeat("x", 1<<20))
	for range 6 {
		collect(t, c, large)
	}
	collect(t, c, value)
	if e := c.finished(); len(e.Results) != 4 || e.ResultsDropped != 3 || e.Text() != "value" {
		t.Errorf("%d large results, %d dropped", len(e.Results), e.ResultsDropped)
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	l := newLogs(20)
	at := time.Now()
	say := func(stream OutputStream, text string, later time.Duration) {
		at = at.Add(later)
		l.note(stream, len(text), at)
		_, _ = l.stream(stream).Write([]byte(text))
	}
	say(StreamStdout, "one ", 0)
	say(StreamStdout, "two\n", time.Millisecond) // at once: one entry
	say(StreamStderr, "err\n", 0)
	say(StreamStdout, "3\n", 0)
	say(StreamStdout, "4\n", time.Second)
	got := func() (texts []string) {
		list, _ := l.list()
		for _, o := range list {
			texts = append(texts, string(o.Stream)+" "+o.Text)
		}
		return texts
	}
	if diff := cmp.Diff([]string{"stdout one two\n", "stderr err\n", "stdout 3\n", "stdout 4\n"}, got()); diff != "" {
		t.Error(diff)
	}
	// Of 20 bytes the first ten and the last ten stay. A character that is cut is
	// left out, and so is an entry without any bytes left.
	say(StreamStdout, strings.Repeat("x", 30), time.Second)
	say(StreamStdout, "12345678é", time.Second)
	if diff := cmp.Diff([]string{"stdout one two\n", "stderr err\n", "stdout 3\n", "stdout 12345678é"}, got()); diff != "" {
		t.Error(diff)
	}
	if _, dropped := l.list(); dropped != 2 {
		t.Errorf("%d dropped", dropped)
	}

	l = newLogs(0)
	for i := range 3 * maxLogs {
		say([]OutputStream{StreamStdout, StreamStderr}[i%2], "x", 0)
	}
	if list, dropped := l.list(); len(list) != maxLogs || dropped != 2*maxLogs {
		t.Errorf("%d entries, %d dropped", len(list), dropped)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	var unset any
	if err := new(Execution).Decode(&unset); !errors.Is(err, api.ErrInvalidArgument) || !strings.Contains(err.Error(), "there is none") {
		t.Errorf("code without a value: got error %v", err)
	}
	text := func(s string) map[string]json.RawMessage {
		data, _ := json.Marshal(s)
		return map[string]json.RawMessage{"text/plain": data}
	}
	for _, test := range []struct {
		data map[string]json.RawMessage
		want any
	}{
		{map[string]json.RawMessage{"application/json": []byte(`{"a":[1]}`), "text/plain": []byte(`"x"`)}, map[string]any{"a": []any{int64(1)}}},
		{text("42"), int64(42)}, {text("-1.5e3"), -1500.0}, {text("True"), true}, {text("False"), false}, {text("None"), nil},
		{text(`'it\'s'`), "it's"}, {text(`"it's"`), "it's"}, {text(`'\xe9\u20ac\n\\'`), "é€\n\\"}, {text("''"), ""},
	} {
		var got any = "unset"
		if err := (Result{Data: test.data}).Decode(&got); err != nil || !cmp.Equal(got, test.want) {
			t.Errorf("%s: %v, %v", test.data, got, err)
		}
	}
	for plain, want := range map[string]float64{"np.float64(4.5)": 4.5, "np.int64(-3)": -3, "np.float32(1e-05)": 1e-5, "inf": math.Inf(1), "-inf": math.Inf(-1), "nan": math.NaN()} {
		got := 7.0
		if err := (Result{Data: text(plain)}).Decode(&got); err != nil || !cmp.Equal(got, want, cmpopts.EquateNaNs()) {
			t.Errorf("%s: %v, %v", plain, got, err)
		}
	}
	for plain, want := range map[string]any{"np.True_": true, "np.False_": false, "np.str_('a')": "a"} {
		var got any
		if err := (Result{Data: text(plain)}).Decode(&got); err != nil || got != want {
			t.Errorf("%s: %v, %v", plain, got, err)
		}
	}
	// A value that is missing among numbers is not 0.
	var floats []float64
	if err := (Result{Data: map[string]json.RawMessage{"application/json": []byte(`[1,null,"inf"]`)}}).Decode(&floats); err != nil ||
		!cmp.Equal(floats, []float64{1, math.NaN(), math.Inf(1)}, cmpopts.EquateNaNs()) {
		t.Errorf("%v, %v", floats, err)
	}
	var s string
	if err := (Result{Data: text("<object at 0x1>")}).Decode(&s); err != nil || s != "<object at 0x1>" {
		t.Errorf("%q, %v", s, err)
	}
	e := &Execution{Results: []Result{{Data: text("1")}, {Main: true, Data: text("2")}}}
	var n int
	if err := e.Decode(&n); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	for name, r := range map[string]Result{
		"an object": {Data: text("<object>")}, "not a number": {Data: text("nan")}, "a broken string": {Data: text(`'\x'`)}, "a string in a number": {Data: text("'2'")},
		"a picture": {Data: map[string]json.RawMessage{"image/png": []byte(`""`)}}, "nothing": {}, "a number that is missing": {Data: map[string]json.RawMessage{"application/json": []byte(`null`)}}, "other JSON": {Data: map[string]json.RawMessage{"application/json": []byte(`[]`)}},
	} {
		if err := r.Decode(&n); err == nil {
			t.Errorf("%s is %d", name, n)
		}
	}
	if err := (&Execution{}).Decode(&n); err == nil {
		t.Error("a value of nothing")
	}
}

// A result is decoded by the rules of package state, the same as the value of a step.
func TestDecodeHasTheRulesOfState(t *testing.T) {
	t.Parallel()
	type answer struct {
		Mean  float64
		Count int64  `py:"n"`
		Label string `json:"name"`
		Sizes []float64
		When  time.Time
		Key   string `json:"-"`
	}
	r := Result{Data: map[string]json.RawMessage{"application/json": []byte(
		`{"mean": 4, "n": 9007199254740993, "name": "x", "sizes": [1, null, "inf"], "when": "2026-01-02T03:04:05+00:00", "Key": "k", "other": {"$": "int"}}`)}}
	got := answer{}
	want := answer{4, 9007199254740993, "x", []float64{1, math.NaN(), math.Inf(1)}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), ""}
	if err := r.Decode(&got); err != nil || !cmp.Equal(got, want, cmpopts.EquateNaNs()) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	value, err := r.Value()
	must.Do(t, err)
	var whole int
	if err := value.Decode(&struct{ Mean *int }{&whole}); err != nil || whole != 4 {
		t.Errorf("got %d, %v, want 4", whole, err)
	}
	if err := r.Decode(&struct{ Mean bool }{}); err == nil || !strings.Contains(err.Error(), `["mean"]`) {
		t.Errorf("got %v, want an error that names the key", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"'a'", `"\u1234"`, "1", "-", "None", "'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value, err := literal(text)
		if _, again := state.Parse(value.Bytes(), state.Bounds{}); err == nil && again != nil {
			t.Errorf("%q gives %q: got %v, want no error", text, value.Bytes(), again)
		}
	})
}
