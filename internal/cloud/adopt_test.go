//go:build linux

package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/must"
)

// lastingRoom is an engine whose sandboxes outlive it.
type lastingRoom struct {
	*fakeRoom

	failure error // of Adopt
	tooBig  bool  // no record can be stored

	stored  sync.Mutex                 // guards what follows, and the fields of sandboxes
	cluster map[string]*lastingSandbox // those with a record
}

// sandbox returns the record of a sandbox in the cluster, and whether a server has left the sandbox.
func (r *lastingRoom) sandbox(id string) (record engine.Record, left bool) {
	r.stored.Lock()
	defer r.stored.Unlock()
	if s := r.cluster[id]; s != nil {
		return s.record, s.left
	}
	return engine.Record{}, false
}

func (r *lastingRoom) sandboxes() int {
	r.stored.Lock()
	defer r.stored.Unlock()
	return len(r.cluster)
}

type lastingSandbox struct {
	*fakeSandbox

	room   *lastingRoom
	record engine.Record
	left   bool
}

func (r *lastingRoom) NewSandbox(ctx context.Context, o engine.SandboxOptions) (engine.Sandbox, error) {
	s, err := r.fakeRoom.NewSandbox(ctx, o)
	if err != nil {
		return nil, err
	}
	return &lastingSandbox{fakeSandbox: s.(*fakeSandbox), room: r}, nil
}

func (r *lastingRoom) Adopt(_ context.Context, found func(engine.Found)) error {
	r.stored.Lock()
	cluster := maps.Clone(r.cluster)
	r.stored.Unlock()
	for id, s := range cluster {
		record, _ := r.sandbox(id)
		found(engine.Found{ID: id, Record: record, Open: func(o engine.SandboxOptions) (engine.Lasting, error) {
			if got, want := o.Config, s.options.Config; got.AccessToken != want.AccessToken || !maps.Equal(got.Envs, want.Envs) || got.TemplateID != want.TemplateID {
				return nil, fmt.Errorf("the configuration is %+v, want %+v", got, want)
			}
			view := &fakeSandbox{options: s.options, daemon: s.daemon, gone: make(chan struct{})}
			return &lastingSandbox{fakeSandbox: view, room: r, record: record}, nil
		}})
	}
	return r.failure
}

func (r *lastingRoom) IDOf(string) string { return "" }

func (s *lastingSandbox) Keep(_ context.Context, r engine.Record) error {
	if s.room.tooBig {
		return fmt.Errorf("%w: 200 KiB", engine.ErrTooLarge)
	}
	s.room.stored.Lock()
	defer s.room.stored.Unlock()
	s.record, s.room.cluster[s.options.ID] = r, s
	return nil
}

func (s *lastingSandbox) Kept() (engine.Record, <-chan struct{}) {
	s.room.stored.Lock()
	defer s.room.stored.Unlock()
	return s.record, nil
}

// Leave ends the wait for the end of the sandbox, whose daemon runs on.
func (s *lastingSandbox) Leave() error {
	s.room.stored.Lock()
	s.left = true
	s.room.stored.Unlock()
	s.once.Do(func() {
		s.err = engine.ErrClosed
		close(s.gone)
	})
	return nil
}

func (s *lastingSandbox) Close() error {
	s.room.stored.Lock()
	delete(s.room.cluster, s.options.ID)
	s.room.stored.Unlock()
	return s.fakeSandbox.Close()
}

func startLasting(t *testing.T, r *lastingRoom, state string) (*Cloud, error) {
	t.Helper()
	r.fakeRoom = &fakeRoom{name: engine.Room, ended: make(chan struct{}), boxes: map[string]*fakeSandbox{}}
	return start(t.Context(), Options{Dir: t.TempDir(), State: state, Key: "e2b_0123", Python: &pyenv.Env{Python: "/opt/venv/bin/python3"}}, map[engine.Name]opener{engine.Room: opens(r)})
}

// TestAdopts checks that a cloud has the sandboxes that the cloud before it left with the engine, and
// that they are the same for clients.
func TestAdopts(t *testing.T) {
	t.Parallel()
	r := &lastingRoom{cluster: map[string]*lastingSandbox{}}
	c, err := startLasting(t, r, "")
	must.Do(t, err)
	const body = `{"templateID":"base","secure":true,"autoPause":true,"timeout":600,"metadata":{"a":"b"},"envVars":{"V":"x"}}`
	status, made := do(t, c, "POST", "/sandboxes", body, "Idempotency-Key", "once")
	if status != 201 {
		t.Fatalf("create: %d %s", status, made)
	}
	var sb struct{ SandboxID string }
	must.Do(t, json.Unmarshal([]byte(made), &sb))
	if status, text := do(t, c, "POST", "/sandboxes/"+sb.SandboxID+"/timeout", `{"timeout":1200}`); status != 204 {
		t.Errorf("timeout: %d %s", status, text)
	}
	if kept, _ := r.sandbox(sb.SandboxID); kept.EndAt.Sub(kept.StartedAt) < 1199*time.Second || kept.Linger != 24*time.Hour || kept.Template != "base" {
		t.Errorf("the record is %+v", kept)
	}
	_, before := do(t, c, "GET", "/sandboxes/"+sb.SandboxID, "")
	domain := c.Domain()
	must.Do(t, c.Close())
	if _, left := r.sandbox(sb.SandboxID); !left {
		t.Fatal("the sandbox ended with the cloud")
	}

	c, err = startLasting(t, r, "")
	must.Do(t, err)
	defer func() { must.Do(t, c.Close()) }()
	if status, after := do(t, c, "GET", "/sandboxes/"+sb.SandboxID, ""); status != 200 || strings.ReplaceAll(after, c.Domain(), domain) != before {
		t.Errorf("after the restart: %d %s, want %s", status, after, before)
	}
	if status, again := do(t, c, "POST", "/sandboxes", body, "Idempotency-Key", "once"); status != 201 || again != strings.ReplaceAll(made, domain, c.Domain()) {
		t.Errorf("the repeated request: %d %s, want %s", status, again, made)
	}
	if status, text := do(t, c, "DELETE", "/sandboxes/"+sb.SandboxID, ""); status != 204 || r.sandboxes() > 0 {
		t.Errorf("kill: %d %s, %v", status, text, r.sandboxes())
	}
}

// TestAdoptFails checks that a cloud does not start without the list of its sandboxes.
func TestAdoptFails(t *testing.T) {
	t.Parallel()
	r := &lastingRoom{failure: errors.New("no list")}
	if _, err := startLasting(t, r, ""); err == nil || !strings.Contains(err.Error(), "no list") || !r.closed {
		t.Errorf("got %v; the engine is closed: %v", err, r.closed)
	}
}

// TestRecordTooLarge checks that a request whose record the engine cannot store is refused with the
// reason, and that its sandbox has ended.
func TestRecordTooLarge(t *testing.T) {
	t.Parallel()
	r := &lastingRoom{tooBig: true}
	c, err := startLasting(t, r, "")
	must.Do(t, err)
	defer func() { must.Do(t, c.Close()) }()
	status, text := do(t, c, "POST", "/sandboxes", `{"templateID":"base"}`)
	if status != 400 || !strings.Contains(text, "envVars") {
		t.Errorf("got %d %s", status, text)
	}
	for id, s := range r.boxes {
		if s.Err() == nil {
			t.Errorf("%s runs", id)
		}
	}
}
