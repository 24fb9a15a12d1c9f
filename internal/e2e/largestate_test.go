//go:build linux

package e2e

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/state"
)

// wire counts the bytes on the connections of a client.
type wire struct{ sent, received atomic.Int64 }

func (w *wire) transport() *http.Transport {
	var dialer net.Dialer
	return &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		return &countedConn{conn, w}, err
	}}
}

type countedConn struct {
	net.Conn
	wire *wire
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.wire.sent.Add(int64(n))
	return n, err
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wire.received.Add(int64(n))
	return n, err
}

// of returns the bytes that a call sends and receives.
func (w *wire) of(call func()) (sent, received int64) {
	sent, received = w.sent.Load(), w.received.Load()
	call()
	return w.sent.Load() - sent, w.received.Load() - received
}

// 64 MiB are sent once in each direction; unchanged values are not sent again.
func TestLargeState(t *testing.T) {
	t.Parallel()
	var w wire
	transport := w.transport()
	defer transport.CloseIdleConnections()
	sb := shared(t).Create(t, sandbox.WithTransport(transport))
	const size = 64 << 20
	numbers := make([]float64, size/8)
	for i := range numbers {
		numbers[i] = float64(i)
	}
	array, err := state.ArrayOf(numbers)
	must.Do(t, err)
	st := state.New()
	set := func(name string, v any) {
		t.Helper()
		must.Do(t, st.Set(name, v))
	}
	var r *agent.Run
	again := func() {
		t.Helper()
		if r != nil {
			must.Do(t, r.Close())
		}
		r, err = agent.Begin(t.Context(), sb, &agent.Params{State: st, Tools: []agent.Tool{add}})
		must.Do(t, err)
	}
	defer func() { r.Close() }()
	set("numbers", array)
	set("small", 1)
	if sent, _ := w.of(again); sent < size || sent > size+size/64 {
		t.Errorf("up: %d bytes, want %d to %d", sent, size, size+size/64)
	}
	again() // the sandbox knows its tools from now on
	for name, change := range map[string]func(){
		"nothing": func() {}, "the same again": func() { set("numbers", array) },
		"what the code changed": func() { observe(t, r, "numbers[5] += 1\nsmall = 2") },
	} {
		change()
		must.Do(t, r.Close())
		if sent, received := w.of(again); sent > 1<<10 || received > 4<<10 {
			t.Errorf("%s was set: %d bytes up, %d down, want at most %d and %d", name, sent, received, 1<<10, 4<<10)
		}
	}
	set("other", []int{1, 2, 3})
	if sent, _ := w.of(again); sent > 4<<10 {
		t.Errorf("a small one was set: %d bytes, want at most %v", sent, 4<<10)
	}
	if step := observe(t, r, "float(numbers[5]), small, other"); step.Text() != "(6.0, 2, [1, 2, 3])" {
		t.Errorf("the sandbox's edits: %s, want %s", step.Text(), "(6.0, 2, [1, 2, 3])")
	}
	_, received := w.of(func() {
		must.Do(t, r.Pull(t.Context(), st))
	})
	if received < size || received > size+size/64 {
		t.Errorf("down: %d bytes, want %d to %d", received, size, size+size/64)
	}
	if _, received := w.of(func() { _ = r.Pull(t.Context(), st) }); received > 8<<10 {
		t.Errorf("nothing changed: %d bytes down, want at most %v", received, 8<<10)
	}
	var back state.Array
	must.Do(t, st.Get("numbers", &back))
	if got, err := state.Elements[float64](back); err != nil || len(got) != len(numbers) {
		t.Errorf("%d numbers came back, %v, want %d and no error", len(got), err, len(numbers))
	} else if last := len(got) - 1; got[5] != 6 || got[last] != numbers[last] {
		t.Errorf("got[5] = %v and got[%d] = %v, want 6 and %v", got[5], last, got[last], numbers[last])
	}
}

// Odd values hit a limit or arrive unchanged, in both directions.
func TestOddState(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	st := state.New()
	var deep any
	for range 10_000 {
		deep = []any{deep}
	}
	cycle := map[string]any{}
	cycle["itself"] = cycle
	for name, v := range map[string]any{
		"deep": deep, "cycle": cycle, "gibibyte": make([]byte, 1<<30),
		"early": time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC), "channel": make(chan int),
	} {
		err := st.Set(name, v)
		_, limit := errors.AsType[*state.LimitError](err)
		_, value := errors.AsType[*state.UnsupportedValueError](err)
		_, typed := errors.AsType[*state.UnsupportedTypeError](err)
		if !limit && !value && !typed {
			t.Errorf("%s: got %v, want an error of package state", name, err)
		}
		if want := name == "deep" || name == "gibibyte"; limit != want {
			t.Errorf("%s: got %v, want a *state.LimitError: %v", name, err, want)
		}
	}
	type row struct {
		Name  string    `py:"name"`
		N     *int      `py:"n"`
		Mixed any       `py:"mixed"`
		When  time.Time `py:"when"`
	}
	when := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	table, err := state.TableOf([]row{{"a", new(1), 1, when}, {"b", nil, "two", when}, {"c", new(3), []any{3.0}, when}})
	must.Do(t, err)
	envelope := map[string]any{"$": "opaque", "type": "x", "value": map[string]any{"$": map[string]any{"$": "blob", "sha256": "0", "size": 1}}}
	for name, v := range map[string]any{"table": table, "envelope": envelope} {
		must.Do(t, st.Set(name, v))
	}
	r := begin(t, sb, &agent.Params{State: st})
	step := observe(t, r, `assert envelope == {"$": "opaque", "type": "x", "value": {"$": {"$": "blob", "sha256": "0", "size": 1}}}, envelope
assert list(table.columns) == ["name", "n", "mixed", "when"] and list(table["mixed"]) == [1, "two", [3.0]] and table["n"].isna().sum() == 1
table.loc[0, "mixed"] = None
envelope["value"]["$"]["$"] = "dict"
cycle = []
cycle.append({"itself": cycle})
deep = []
for i in range(10_000): deep = [deep]
gibibyte = [bytes(1 << 30)]
import datetime
early = datetime.datetime.min - datetime.timedelta(0)
fine = 1`)
	if step.Error != nil {
		t.Fatalf("got %v, want no Python error", step.Error.Traceback)
	}
	must.Do(t, r.Pull(t.Context(), st))
	for name, reason := range map[string]string{
		"cycle": "it contains itself", "deep": "it is nested more than 200 deep", "gibibyte": "it has more bytes than may be sent",
	} {
		var o state.Opaque
		if err := st.Get(name, &o); err != nil || o.Reason != reason {
			t.Errorf("%s: got %+v, %v, want the reason %q and no error", name, o, err, reason)
		}
	}
	var early time.Time
	if err := st.Get("early", &early); err != nil || early.Year() != 1 {
		t.Errorf("got %v, %v, want the year 1 and no error", early, err)
	}
	var back map[string]any
	if err := st.Get("envelope", &back); err != nil || back["value"].(map[string]any)["$"].(map[string]any)["$"] != "dict" {
		t.Errorf("got %v, %v, want what was set and no error", back, err)
	}
	var changed state.Table
	must.Do(t, st.Get("table", &changed))
	rows, err := state.Rows[row](changed)
	if err != nil || len(rows) != 3 {
		t.Fatalf("got %+v, %v, want 3 rows and no error", rows, err)
	}
	if rows[0].Mixed != nil || rows[1].N != nil || *rows[2].N != 3 {
		t.Errorf("got %+v, want nothing in row 0, no number in row 1 and 3 in row 2", rows)
	}
	if !rows[2].When.Equal(when) {
		t.Errorf("got the time %v, want %v", rows[2].When, when)
	}
}
