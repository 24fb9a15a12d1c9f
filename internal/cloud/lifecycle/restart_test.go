package lifecycle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// server is a registry in a durable store, with its log.
type server struct {
	*stage
	dir   string
	store *store.Store
	log   lockedBuffer
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// shared lets the sandboxes of the registry share layers.
func shared(o *lifecycle.Options) {
	o.Layers = layers.Open(layers.Options{Store: o.Store, Sharing: lifecycletest.Sharing, Logger: o.Logger})
}

func serve(t *testing.T, dir string, change ...func(*lifecycle.Options)) *server {
	t.Helper()
	st, err := store.Open(t.Context(), dir)
	must.Do(t, err)
	v := &server{dir: dir, store: st}
	t.Cleanup(func() { _ = st.Close() }) // after the registry
	durable := func(o *lifecycle.Options) { o.Store, o.Logger = st, slog.New(slog.NewTextHandler(&v.log, nil)) }
	v.stage = newStage(t, append([]func(*lifecycle.Options){durable}, change...)...)
	v.stage.dir = dir
	return v
}

// end closes the server and its store. crash ends the server as if it were killed: it writes
// nothing more to its store.
func (v *server) end(t *testing.T) {
	t.Helper()
	must.Do(t, errors.Join(v.Close(), v.store.Close()))
}

func (v *server) crash(t *testing.T) {
	t.Helper()
	must.Do(t, v.store.Close())
}

// TestRestart checks that the next server has everything that a server left, whether the server was
// closed or killed.
func TestRestart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*lifecycle.Request)
		before func(t *testing.T, v *server, id string)
		ended  string // result of Get after the server was closed
		killed string // result of Get after the server was killed
	}{
		"running":                    {nil, nil, "gone server_gone", "gone server_gone"},
		"running, to be paused":      {autoPause, nil, "paused", "gone server_gone"},
		"paused with memory":         {nil, pauseFull, "paused", "paused"},
		"paused without memory":      {nil, pauseFiles, "paused", "paused"},
		"paused, resumed":            {nil, func(t *testing.T, v *server, id string) { pauseFull(t, v, id); resume(t, v, id) }, "paused", "paused"},
		"paused, booted":             {nil, func(t *testing.T, v *server, id string) { pauseFiles(t, v, id); resume(t, v, id) }, "paused", "paused"},
		"killed":                     {nil, kill, "gone ", "gone "},
		"paused, killed":             {nil, func(t *testing.T, v *server, id string) { pauseFull(t, v, id); kill(t, v, id) }, "gone ", "gone "},
		"paused, resumed and killed": {nil, func(t *testing.T, v *server, id string) { pauseFull(t, v, id); resume(t, v, id); kill(t, v, id) }, "gone ", "gone "},
	} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, crash %v", name, crash), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				v := serve(t, dir)
				id := v.create(t, full, func(q *lifecycle.Request) {
					if tt.change != nil {
						tt.change(q)
					}
				})
				was, spec := v.get(t, id), v.fakes.Spec(id)
				if tt.before != nil {
					tt.before(t, v, id)
				}
				want := tt.ended
				if crash {
					v.crash(t)
					want = tt.killed
				} else {
					v.end(t)
				}
				next := serve(t, dir)
				sb, err := next.Get(id)
				if got := outcome(sb.State.String(), err); got != want {
					t.Fatalf("got %s, want %s", got, want)
				}
				if err != nil {
					return
				}
				if sb.Memory || sb.AccessToken != was.AccessToken || sb.TrafficToken != was.TrafficToken {
					t.Errorf("got %+v, want no memory, and the tokens of %+v", sb, was)
				}
				if err := next.Wake(t.Context(), id); !errors.Is(err, lifecycle.ErrAsleep) {
					t.Errorf("a request wakes it: %v, want ErrAsleep", err)
				}
				if _, resumed, err := next.Connect(t.Context(), id, day); err != nil || !resumed {
					t.Fatalf("resumed: %v, %v", resumed, err)
				}
				again := next.fakes.Spec(id)
				if again.Files == "" {
					t.Error("it was started without files")
				}
				again.Files = ""
				if got, want := specText(t, again), specText(t, spec); got != want {
					t.Errorf("it was started with %s, want %s", got, want)
				}
				next.end(t)
			})
		}
	}
}

func full(q *lifecycle.Request) {
	offline := false
	q.Secure, q.Envs, q.Metadata, q.Internet = true, map[string]string{"A": "b"}, map[string]string{"c": "d"}, &offline
	q.Network = &lifecycle.Network{AllowOut: []string{"203.0.113.0/24"}, AllowPublicTraffic: &offline, MaskHost: "a.test", HTTPSPorts: []int{443}}
}

func pauseFull(t *testing.T, v *server, id string) { v.pause(t, id, lifecycle.PauseOptions{}) }

func pauseFiles(t *testing.T, v *server, id string) {
	v.pause(t, id, lifecycle.PauseOptions{DropMemory: true})
}

func resume(t *testing.T, v *server, id string) {
	t.Helper()
	_, err := v.Resume(t.Context(), id, day)
	must.Do(t, err)
}

func kill(t *testing.T, v *server, id string) {
	t.Helper()
	must.Do(t, v.Kill(id))
}

func specText(t *testing.T, s lifecycle.Spec) string {
	t.Helper()
	rules := fmt.Sprintf("%+v", *s.Egress)
	s.Egress = nil
	text, err := json.Marshal(s)
	must.Do(t, err)
	return string(text) + rules
}

// TestEndIsReportedOnce checks that only the next server reports that a sandbox ended with its server.
func TestEndIsReportedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := serve(t, dir)
	id := v.create(t)
	v.crash(t)
	for _, want := range []lifecycle.Reason{lifecycle.ServerGone, ""} {
		next := serve(t, dir)
		if _, err := next.Get(id); !isNotFound(err) || reasonOf(err) != want {
			t.Errorf("got error %v, want the reason %q", err, want)
		}
		next.end(t)
	}
}

// TestLostMemoryIsLogged checks that the next server logs the loss of memory that ended with its
// server.
func TestLostMemoryIsLogged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := serve(t, dir)
	lost, files := v.create(t), v.create(t)
	pauseFull(t, v, lost)
	pauseFiles(t, v, files)
	v.end(t)
	next := serve(t, dir)
	var lines []string
	for line := range strings.Lines(next.log.String()) {
		if strings.Contains(line, "ended with the local cloud") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], lost) {
		t.Errorf("logged %q, want one line, about %s", lines, lost)
	}
	next.end(t)
}

// TestDamagedRecords checks that an unreadable record is named in the log, is not changed, and does
// not affect other records.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := serve(t, dir)
	good := v.create(t)
	pauseFiles(t, v, good)
	id := func(i int) string { return fmt.Sprintf("idamaged%013d", i) }
	values := []string{
		``, `{`, `[]`, `{}`, `"x"`, `{"Version":2,"Request":{"Template":{"ID":"a"}}}`, `{"Version":0,"Request":{"Template":{"ID":"a"}}}`,
		`{"Version":1}`, `{"Version":1,"Request":{"Template":{"ID":"a"},"Network":{"DenyOut":["nonsense"]}}}`, `{"Version":1,"Request":{"Envs":1}}`,
	}
	for i, value := range values {
		files, err := v.store.NewDir()
		if err == nil {
			_, err = v.store.Put(store.Sandboxes, id(i), []byte(value), files)
		}
		must.Do(t, err)
	}
	if _, err := v.store.Put(store.Sandboxes, id(len(values)), []byte(`{"Version":1,"Request":{"Template":{"ID":"a"}}}`), ""); err != nil {
		t.Fatal(err)
	}
	v.end(t)
	next := serve(t, dir)
	if all := next.List(everything); len(all) != 1 || all[0].ID != good {
		t.Errorf("listed %+v, want only %s", all, good)
	}
	for i := range len(values) + 1 {
		if !strings.Contains(next.log.String(), id(i)) {
			t.Errorf("%s is not named in the log", id(i))
		}
	}
	left, err := next.store.Records(store.Sandboxes)
	if err != nil || len(left) != len(values)+2 {
		t.Errorf("%d records are left, %v, want all %d", len(left), err, len(values)+2)
	}
	next.end(t)
}

// TestCloseDuringTransitions checks that a closing server waits for a pause that has begun, but
// only for a limited time.
func TestCloseDuringTransitions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := serve(t, dir)
	ids := make([]string, 6)
	for i := range ids {
		ids[i] = v.create(t, autoPause)
	}
	pauseFull(t, v, ids[0])
	release := v.hold(lifecycletest.Save)
	paused := make(chan error, 1)
	go func() { paused <- v.Pause(t.Context(), ids[1], lifecycle.PauseOptions{}) }()
	patience.Until(t, "its pause has begun", func() bool { return v.get(t, ids[1]).State != lifecycle.Running })
	ended := make(chan error, 1)
	go func() { ended <- v.Close() }()
	release()
	must.Do(t, errors.Join(<-paused, <-ended, v.store.Close()))
	next := serve(t, dir)
	for _, id := range ids {
		if sb := next.get(t, id); sb.State != lifecycle.Paused {
			t.Errorf("%s is %v, want it paused", id, sb.State)
		}
	}
	next.end(t)
}

// TestCloseCutsTransitionsShort checks that a closing server does not wait for transitions whose
// result the next server cannot use.
func TestCloseCutsTransitionsShort(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"pausing", "resuming"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				id := s.create(t)
				s.bring(t, id, state) // and never releases it
				begun := time.Now()
				if err := s.Close(); err != nil || time.Since(begun) > 0 {
					t.Errorf("closed with %v after %v, want it at once", err, time.Since(begun))
				}
				if !s.fakes.Fake(id).Ended() {
					t.Error("it still runs")
				}
			})
		})
	}
}

// TestStoreFails checks that sandboxes continue when the store fails. A sandbox that could not be
// paused runs, and a sandbox that could not be killed can be killed later.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := serve(t, dir)
	runs, paused := v.create(t), v.create(t)
	pauseFull(t, v, paused)
	v.crash(t)
	for _, o := range []lifecycle.PauseOptions{{}, {DropMemory: true}} {
		_, failed := errors.AsType[*lifecycle.SaveError](v.Pause(t.Context(), runs, o))
		if sb := v.get(t, runs); !failed || sb.State != lifecycle.Running || v.fakes.Fake(runs).Paused() {
			t.Errorf("%+v: failed: %v, then it is %v, want a SaveError and a sandbox that runs", o, failed, sb.State)
		}
	}
	err := v.Kill(paused)
	if sb := v.get(t, paused); !errors.Is(err, store.ErrClosed) || sb.State != lifecycle.Paused || sb.Memory {
		t.Errorf("killed with %v, then it is %+v, want ErrClosed, and a sandbox that is paused without its memory", err, sb)
	}
	if why := v.Ended(paused); why != "" {
		t.Errorf("got that it ended because %q, want that it is there", why)
	}
	if _, _, err := v.Connect(t.Context(), runs, day); err != nil {
		t.Error(err)
	}
	if err := v.Kill(runs); err != nil {
		t.Error(err)
	}
}

// TestClockSetBack checks that lifetimes are right if the clock was set back between two servers:
// they count from the resume.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := serve(t, dir)
	id := v.create(t, autoPause)
	v.Advance(365 * 24 * time.Hour)
	if sb := v.get(t, id); sb.State != lifecycle.Paused {
		t.Fatalf("it is %v, want it paused", sb.State)
	}
	v.end(t)
	next := serve(t, dir)
	if sb := next.get(t, id); time.Until(sb.EndAt) < 300*24*time.Hour {
		t.Errorf("paused at %v, want about a year from now", sb.EndAt)
	}
	sb, _, err := next.Connect(t.Context(), id, day)
	if life := sb.EndAt.Sub(sb.StartedAt).Round(time.Minute); err != nil || life != time.Hour {
		t.Errorf("resumed for %v, %v, want an hour", life, err)
	}
	next.end(t)
}
