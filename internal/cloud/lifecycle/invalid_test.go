package lifecycle

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestInvalidNetworks checks that each invalid part of a requested network is reported, and that no
// sandbox is launched with it.
func TestInvalidNetworks(t *testing.T) {
	t.Parallel()
	r := New(Options{Store: store.Temporary(t.TempDir()), MaxSandboxes: 1})
	for list, n := range map[string]*Network{
		"dnsServers":  {AllowOut: []string{"a.test"}, NameServers: []string{"no address"}},
		"denyOut":     {DenyOut: []string{"a.test"}},
		"ask":         {Ask: true},
		"egressProxy": {Proxy: &network.EgressProxy{Address: "no port"}},
		"rules":       {Requests: map[string][]network.Request{"a.test": {{Path: "/"}}}},
	} {
		_, err := n.Rules(nil)
		if invalid, ok := errors.AsType[*network.RuleError](err); !ok || invalid.List != list {
			t.Errorf("%s: got error %v", list, err)
		}
		_, err = r.Create(t.Context(), Request{Template: Template{ID: "t"}, Lifetime: time.Hour, Network: n})
		if _, ok := errors.AsType[*RefusedError](err); !ok {
			t.Errorf("%s: a sandbox was made: %v", list, err)
		}
		if r.places != 0 {
			t.Errorf("%s: the sandbox that was not made has a place", list)
		}
	}
	_, err := (&Network{Headers: map[string]map[string]string{"*": {"A": "b"}}}).Rules(nil)
	if invalid, ok := errors.AsType[*network.RuleError](err); !ok || invalid.List != "rules" {
		t.Errorf("headers: got error %v", err)
	}
	for _, tt := range []struct {
		n    *Network
		want bool
	}{{nil, false}, {&Network{}, false}, {&Network{AllowPublicTraffic: new(true)}, false}, {&Network{AllowPublicTraffic: new(false)}, true}} {
		if got := tt.n.Private(); got != tt.want {
			t.Errorf("%+v: private is %v", tt.n, got)
		}
	}
	must.Do(t, r.Close())
}

// TestTokens checks which sandboxes have tokens.
func TestTokens(t *testing.T) {
	t.Parallel()
	private := Request{Secure: true, Network: &Network{AllowPublicTraffic: new(false)}}
	for _, tt := range []struct {
		o               Options
		q               Request
		access, traffic bool
	}{
		{Options{}, Request{}, false, false},
		{Options{}, private, true, true},
		{Options{Secure: true}, Request{}, true, false},
		{Options{TrafficTokens: true}, Request{}, false, true},
	} {
		tt.o.Store = store.Temporary(t.TempDir())
		r := New(tt.o)
		sb := r.newSandbox(tt.q, newID())
		if (sb.AccessToken != "") != tt.access || sb.Secure != tt.access || (sb.TrafficToken != "") != tt.traffic {
			t.Errorf("%+v: got the tokens %q and %q, secure: %v", tt, sb.AccessToken, sb.TrafficToken, sb.Secure)
		}
		if tt.access && tt.traffic && sb.AccessToken == sb.TrafficToken {
			t.Error("both tokens are the same")
		}
		must.Do(t, r.Close())
	}
}

// TestRecordsThatCannotBeRead checks which records of the store and of the engine are refused.
func TestRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := New(Options{Store: store.Temporary(t.TempDir())})
	id := newID()
	good := Request{Template: Template{ID: "t"}}
	for what, tt := range map[string]struct {
		version int
		id, dir string
		q       Request
		text    string // in place of a record
		stored  bool   // only a record of the store is refused
		ok      bool
	}{
		"good":               {version: 1, id: id, dir: "d", q: good, ok: true},
		"no record":          {id: id, dir: "d", text: "{"},
		"version 0":          {id: id, dir: "d", q: good},
		"a later version":    {version: 2, id: id, dir: "d", q: good},
		"no files":           {version: 1, id: id, q: good, stored: true},
		"a short id":         {version: 1, id: id[:20], dir: "d", q: good},
		"another first byte": {version: 1, id: "j" + id[1:], dir: "d", q: good},
		"another byte":       {version: 1, id: id[:20] + "/", dir: "d", q: good},
		"no template":        {version: 1, id: id, dir: "d"},
		"an invalid network": {version: 1, id: id, dir: "d", q: Request{Template: good.Template, Network: &Network{Ask: true}}, stored: true},
	} {
		value, err := json.Marshal(saved{Version: tt.version, Request: tt.q, SavedMemory: true})
		must.Do(t, err)
		sealed, err := json.Marshal(carried{Version: tt.version, Request: tt.q})
		must.Do(t, err)
		if tt.text != "" {
			value, sealed = []byte(tt.text), []byte(tt.text)
		}
		if _, _, err := r.load(store.Record{ID: tt.id, Value: value, Dir: tt.dir}); (err == nil) != tt.ok {
			t.Errorf("%s: got error %v from the store's record", what, err)
		}
		if _, _, err := sandboxOf(tt.id, engine.Record{Sealed: sealed}); (err == nil) != (tt.ok || tt.stored) {
			t.Errorf("%s: got error %v from the engine's record", what, err)
		}
		opened, opens := false, tt.ok || what == "no files"
		err = r.Adopt(tt.id, engine.Record{Sealed: sealed}, func(Spec) (Lasting, error) { opened = true; return nil, engine.ErrGone })
		if opened != opens || errors.Is(err, engine.ErrGone) != opens || err == nil {
			t.Errorf("%s: its sandbox was opened: %v, error %v", what, opened, err)
		}
	}
	if running, paused := r.Count(); running+paused != 0 {
		t.Errorf("%d run and %d are paused, want that a sandbox which cannot be opened is not adopted", running, paused)
	}
	must.Do(t, r.Close())
}
