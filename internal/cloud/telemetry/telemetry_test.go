package telemetry

import (
	"bytes"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// messages returns the messages in a sandbox's log. If q has no limit, it reads as many pages as
// necessary.
func messages(t *testing.T, r *Registry, id string, q Query) (all []string) {
	t.Helper()
	for {
		entries, ok := r.Logs(id, q)
		if !ok {
			t.Fatalf("the sandbox %s has no log", id)
		}
		for _, e := range entries {
			all = append(all, e.Message)
		}
		if len(entries) == 0 || q.Limit > 0 {
			return all
		}
		if last := entries[len(entries)-1].Time; q.Backward {
			q.Until = last
		} else {
			q.From = last.Add(1)
		}
	}
}

func TestQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{})
		defer r.Close()
		r.Open("a")
		begun := time.Now()
		for i, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			r.Add("a", Entry{Level: level, Logger: "l", Message: fmt.Sprintf("Message %d", i)})
			<-time.After(time.Second)
		}
		for name, tt := range map[string]struct {
			q    Query
			want string
		}{
			"all":               {Query{Level: slog.LevelDebug}, "0 1 2 3"},
			"level":             {Query{Level: slog.LevelWarn}, "2 3"},
			"from is included":  {Query{Level: slog.LevelDebug, From: begun.Add(time.Second)}, "1 2 3"},
			"until is not":      {Query{Level: slog.LevelDebug, Until: begun.Add(2 * time.Second)}, "0 1"},
			"limit":             {Query{Level: slog.LevelDebug, Limit: 2}, "0 1"},
			"backward":          {Query{Level: slog.LevelDebug, Limit: 2, Backward: true}, "3 2"},
			"search":            {Query{Level: slog.LevelDebug, Search: "mESSAGE 2"}, "2"},
			"nothing is found":  {Query{Search: "5"}, ""},
			"limit counts hits": {Query{Level: slog.LevelError, Limit: 1}, "3"},
		} {
			got := strings.ReplaceAll(strings.Join(messages(t, r, "a", tt.q), " "), "Message ", "")
			if got != tt.want {
				t.Errorf("%s: got %q, want %q", name, got, tt.want)
			}
		}
		if _, ok := r.Logs("b", Query{}); ok {
			t.Error("there is a log of a sandbox that never was")
		}
		r.Add("b", Entry{Message: "to nobody"})
	})
}

// TestFull checks that a full log drops its oldest entries, and that an entry in their place
// reports this.
func TestFull(t *testing.T) {
	r := New(Options{})
	defer r.Close()
	r.Open("a")
	const each, many = maxMessage, 3 * maxLog / maxMessage
	for i := range many {
		r.Add("a", Entry{Level: slog.LevelInfo, Message: fmt.Sprintf("%d ", i) + strings.Repeat("x", 2*each)})
	}
	r.mu.Lock()
	size := r.records["a"].log.size
	r.mu.Unlock()
	if size > maxLog || size < maxLog*9/10 {
		t.Errorf("it takes %d bytes, want a little less than %d", size, maxLog)
	}
	all := messages(t, r, "a", Query{})
	dropped := fmt.Sprintf("%d earlier entries were dropped", many-len(all)+1)
	if !strings.HasPrefix(all[0], dropped) || !strings.HasPrefix(all[1], fmt.Sprintf("%d ", many-len(all)+1)) {
		t.Errorf("it begins with %.60q, %.60q, want %q and the entry after these", all[0], all[1], dropped)
	}
	newest := messages(t, r, "a", Query{Backward: true})
	if !strings.HasPrefix(newest[0], fmt.Sprintf("%d ", many-1)) || !strings.HasPrefix(newest[len(newest)-1], dropped) {
		t.Errorf("backward from %.20q to %.60q", newest[0], newest[len(newest)-1])
	}
	if len(all[1]) > maxMessage+len("…") {
		t.Errorf("a message has %d bytes, want at most %d", len(all[1]), maxMessage)
	}
}

// TestAllFull checks that the size of all logs together is bounded. The logs of ended sandboxes
// lose entries first, and then the largest log.
func TestAllFull(t *testing.T) {
	r := New(Options{})
	defer r.Close()
	fill := func(id string, size int) {
		r.Open(id)
		for range size / maxMessage {
			r.Add(id, Entry{Level: slog.LevelInfo, Message: strings.Repeat("x", maxMessage)})
		}
	}
	fill("ended", maxLog)
	r.End("ended")
	fill("quiet", maxLog/8)
	for i := range maxLogs / maxLog {
		fill(fmt.Sprint(i), maxLog)
	}
	r.mu.Lock()
	size, each := r.size, 0
	for _, rec := range r.records {
		each += rec.log.size
	}
	r.mu.Unlock()
	if size != each {
		t.Errorf("all take %d bytes, and the sum of them is %d", size, each)
	}
	if size > maxLogs {
		t.Errorf("all take %d bytes, want at most %d", size, maxLogs)
	}
	if _, ok := r.Logs("ended", Query{}); ok {
		t.Error("the log of the sandbox that had ended is still there")
	}
	if got, want := len(messages(t, r, "quiet", Query{})), maxLog/8/maxMessage; got != want {
		t.Errorf("the quiet one has %d entries, want %d", got, want)
	}
}

func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{})
		defer r.Close()
		r.Open("a")
		r.Run("a", 0, func() (engine.Usage, bool) { return engine.Usage{}, true })
		r.Add("a", Entry{Level: slog.LevelInfo, Message: "said"})
		synctest.Wait()
		r.End("a")
		r.End("a")
		r.Run("a", 0, func() (engine.Usage, bool) { panic("it has ended") })
		if got := r.Metrics("a", time.Time{}, time.Now()); len(got) > 0 {
			t.Errorf("got %v of an ended sandbox, want none", got)
		}
		<-time.After(kept - time.Second)
		if got := messages(t, r, "a", Query{}); len(got) != 1 {
			t.Errorf("got %q shortly before the hour was over, want what was said", got)
		}
		<-time.After(2 * time.Second)
		if _, ok := r.Logs("a", Query{}); ok {
			t.Error("there is a log when the hour is over")
		}
	})
}

// TestManyEnded checks that the logs of the sandboxes that ended last are kept, and of no other ended ones.
func TestManyEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{})
		defer r.Close()
		r.Open("running")
		for i := range maxEnded + 2 {
			id := strconv.Itoa(i)
			r.Open(id)
			r.Add(id, Entry{Message: "said"})
			r.End(id)
			for j := range i + 1 {
				if _, ok := r.Logs(strconv.Itoa(j), Query{}); i >= maxEnded-1 && ok != (j > i-maxEnded) {
					t.Errorf("%d ended: there is a log of sandbox %d: %v", i+1, j, ok)
				}
			}
		}
		held := func() (logs, bytes int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.records), r.size
		}
		logs, _ := held()
		if _, ok := r.Logs("running", Query{}); !ok || logs != maxEnded+1 {
			t.Errorf("got %d logs, want those of %d ended sandboxes and of the running one", logs, maxEnded)
		}
		<-time.After(kept + 1)
		synctest.Wait()
		if logs, bytes := held(); logs != 1 || bytes != 0 {
			t.Errorf("an hour later there are %d logs of %d bytes, want the empty one of the running sandbox", logs, bytes)
		}
	})
}

// TestOpenAgain checks that a sandbox which gets the id of a failed one has metrics, and a log that
// goes on.
func TestOpenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{})
		defer r.Close()
		r.Open("a")
		r.Add("a", Entry{Level: slog.LevelInfo, Message: "failed"})
		r.End("a")
		<-time.After(kept / 2)
		r.Open("a")
		r.Run("a", 0, func() (engine.Usage, bool) { return engine.Usage{Memory: 1}, true })
		<-time.After(kept)
		if got := messages(t, r, "a", Query{}); len(got) != 1 {
			t.Errorf("the log has %q, want what was said before", got)
		}
		if got := r.Metrics("a", time.Time{}, time.Now()); len(got) == 0 {
			t.Error("it has no metrics")
		}
	})
}

func TestInside(t *testing.T) {
	began := time.Now()
	r := New(Options{})
	defer r.Close()
	r.Open("a")
	for _, line := range []string{
		`{"time":"1999-01-01T00:00:00Z","level":"WARN","msg":"m","logger":"kernel","n":1.5,"list":[1],"text":"t\u0000\ud800"}`,
		`{"level":"INFO","msg":"not lifecycle's","logger":"lifecycle"}`,
		`{"level":"LOUD","msg":"no level"}`, `{"level":"INFO"}`, `[]`, `{`, "", `{"level":"INFO","msg":7}`,
	} {
		r.Inside("a", []byte(line))
	}
	fields := make([]string, 0, 100)
	for i := range cap(fields) {
		fields = append(fields, fmt.Sprintf("%q:%q", fmt.Sprint(i, strings.Repeat("k", 100)), strings.Repeat("v", 3000)))
	}
	r.Inside("a", []byte(`{"level":"INFO","msg":"much",`+strings.Join(fields, ",")+`}`))
	r.Inside("b", []byte(`{"level":"INFO","msg":"nobody's"}`))
	got, _ := r.Logs("a", Query{Level: slog.LevelDebug})
	if len(got) != 3 {
		t.Fatalf("got %d entries, want 3: %.500v", len(got), got)
	}
	much := got[2]
	got = got[:2]
	for i := range got {
		if got[i].Time.Before(began) {
			t.Errorf("the time is %v, want the server's", got[i].Time)
		}
		got[i].Time = time.Time{}
	}
	want := []Entry{
		{Level: slog.LevelWarn, Logger: "kernel", Message: "m", Fields: []Field{{"list", "[1]"}, {"n", "1.5"}, {"text", "t\x00\ufffd"}}},
		{Level: slog.LevelInfo, Logger: "envd", Message: "not lifecycle's", Fields: []Field{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := len(much.Fields); n != maxFields || much.size() > maxFields*(maxName+maxValue+64) {
		t.Errorf("the large one has %d fields and %d bytes", n, much.size())
	}
}

// TestFlood checks that entries from inside that arrive too fast are dropped, and that the log
// contains their number.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{})
		defer r.Close()
		r.Open("a")
		const many = 3 * burst
		for range many {
			r.Inside("a", []byte(`{"level":"INFO","msg":"flood"}`))
		}
		r.Add("a", Entry{Level: slog.LevelInfo, Message: "the server's"})
		if got := len(messages(t, r, "a", Query{})); got != burst+1 {
			t.Errorf("got %d entries, want %d", got, burst+1)
		}
		<-time.After(time.Second)
		r.Inside("a", []byte(`{"level":"INFO","msg":"after"}`))
		last := messages(t, r, "a", Query{Backward: true, Limit: 2})
		if want := fmt.Sprintf("%d entries from inside", many-burst); last[0] != "after" || !strings.HasPrefix(last[1], want) {
			t.Errorf("it ends with %q, want %q before after", last, want)
		}
	})
}

func TestLogger(t *testing.T) {
	r := New(Options{})
	defer r.Close()
	r.Open("a")
	ctx := t.Context()
	var written bytes.Buffer
	l := r.Logger(slog.New(slog.NewTextHandler(&written, &slog.HandlerOptions{Level: slog.LevelWarn})), "lifecycle")
	l.InfoContext(ctx, "kept", "sandbox", "a", "n", 1, slog.Group("g", "m", 2))
	l.With("sandbox", "a", "x", "y").WithGroup("g").WarnContext(ctx, "both", "z", time.Second)
	l.DebugContext(ctx, "too little", "sandbox", "a")
	l.InfoContext(ctx, "nobody's")
	l.InfoContext(ctx, "unknown", "sandbox", "b")
	got, _ := r.Logs("a", Query{Level: slog.LevelDebug})
	for i := range got {
		got[i].Time = time.Time{}
	}
	want := []Entry{
		{Level: slog.LevelInfo, Logger: "lifecycle", Message: "kept", Fields: []Field{{"n", "1"}, {"g", "[m=2]"}}},
		{Level: slog.LevelWarn, Logger: "lifecycle", Message: "both", Fields: []Field{{"x", "y"}, {"g.z", "1s"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := written.String(); !strings.Contains(text, "msg=both sandbox=a x=y g.z=1s") || strings.Contains(text, "kept") {
		t.Errorf("the next handler has %q, want only the warning", text)
	}
	r.Logger(nil, "l").InfoContext(ctx, "without another", "sandbox", "a")
	if got, _ := r.Logs("a", Query{Search: "without another"}); len(got) != 1 {
		t.Errorf("got %v, want the entry", got)
	}
}
