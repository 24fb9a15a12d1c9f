//go:build linux

package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/must"
)

// twoEngines contains a room and a second engine, docker, which the machine may lack.
type twoEngines struct {
	room, docker *fakeRoom
	missing      error // error of opening docker
	opened       atomic.Int32
}

func newTwoEngines() *twoEngines {
	fake := func(name engine.Name) *fakeRoom {
		return &fakeRoom{name: name, ended: make(chan struct{}), boxes: map[string]*fakeSandbox{}}
	}
	return &twoEngines{room: fake(engine.Room), docker: fake(engine.Docker)}
}

func (e *twoEngines) start(t *testing.T, o Options) *Cloud {
	t.Helper()
	o.Dir, o.Python = t.TempDir(), &pyenv.Env{Python: "/opt/venv/bin/python3", Vars: []string{"A=b"}}
	c, err := start(t.Context(), o, map[engine.Name]opener{
		engine.Room: opens(e.room),
		engine.Docker: func(context.Context, *Cloud, string) (engine.Engine, error) {
			e.opened.Add(1)
			return e.docker, e.missing
		},
	})
	must.Do(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// by returns the engine that runs a sandbox.
func (e *twoEngines) by(id string) engine.Name {
	switch {
	case e.room.boxes[id] != nil:
		return engine.Room
	case e.docker.boxes[id] != nil:
		return engine.Docker
	}
	return ""
}

// TestEngines checks that each sandbox runs on the engine of its template, or else on the cloud's
// engine.
func TestEngines(t *testing.T) {
	t.Parallel()
	for _, own := range []engine.Name{engine.Room, engine.Docker} {
		t.Run(string(own), func(t *testing.T) {
			t.Parallel()
			e := newTwoEngines()
			c := e.start(t, Options{Engine: own})
			if got, want := e.opened.Load(), map[engine.Name]int32{engine.Docker: 1}[own]; got != want {
				t.Errorf("docker was opened %d times at the start, want %d", got, want)
			}
			for template, want := range map[string]engine.Name{"base": own, "code-interpreter-v1": own, "base-docker": engine.Docker, "code-interpreter-v1-room": engine.Room} {
				id := create(t, c, fmt.Sprintf(`{"templateID":%q}`, template))
				if got := e.by(id); got != want {
					t.Errorf("%s runs on %q, want %q", template, got, want)
				}
			}
			if e.opened.Load() != 1 {
				t.Errorf("docker was opened %d times, want once", e.opened.Load())
			}
			if status, text := do(t, c, "POST", "/v2/sandboxes", `{"templateID":"base-moon"}`); status != 404 {
				t.Errorf("an engine that nobody knows: got %d %s, want 404", status, text)
			}
			if got := c.Report().Engine; got != own {
				t.Errorf("the report is about %q, want %q", got, own)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if !e.room.closed || !e.docker.closed {
				t.Errorf("closed are room: %v, docker: %v", e.room.closed, e.docker.closed)
			}
		})
	}
}

// TestConfigOfEngines checks that only sandboxes in a room have the Python of this machine.
func TestConfigOfEngines(t *testing.T) {
	t.Parallel()
	e := newTwoEngines()
	c := e.start(t, Options{})
	for template, want := range map[string]bool{"base": true, "base-docker": false} {
		id := create(t, c, fmt.Sprintf(`{"templateID":%q}`, template))
		sb := e.room.boxes[id]
		if sb == nil {
			sb = e.docker.boxes[id]
		}
		config := sb.options.Config
		if got := len(config.Python) > 0 && len(config.System) > 0 && config.Path != ""; got != want {
			t.Errorf("%s: got %+v, want those of this machine: %v", template, config, want)
		}
	}
}

// TestEngineIsMissing checks that the error for a missing engine names it with the reason, and that
// no other engine replaces it. The next request tries again, and an engine that has ended is opened
// again.
func TestEngineIsMissing(t *testing.T) {
	t.Parallel()
	e := newTwoEngines()
	e.missing = errors.New("no daemon: install one")
	state := t.TempDir()
	c := e.start(t, Options{State: state})
	refused := func(method, path, body string) {
		t.Helper()
		status, text := do(t, c, method, path, body)
		if status != 400 || !strings.Contains(text, "the engine docker: no daemon: install one") {
			t.Errorf("%s %s: got %d %s, want 400 with the engine and the reason", method, path, status, text)
		}
	}
	refused("POST", "/v2/sandboxes", `{"templateID":"base-docker"}`)
	refused("POST", "/v3/templates", `{"name":"job","engine":"docker"}`)
	if status, text := do(t, c, "POST", "/v3/templates", `{"name":"job","engine":"moon"}`); status != 400 || !strings.Contains(text, "engine must be one of") {
		t.Errorf("an engine that nobody knows: got %d %s, want 400", status, text)
	}
	e.missing = nil
	id := create(t, c, `{"templateID":"base-docker","autoPause":true}`)
	close(e.docker.ended)
	e.docker = newTwoEngines().docker
	next := create(t, c, `{"templateID":"base-docker"}`)
	if got := e.by(next); got != engine.Docker || e.opened.Load() != 4 {
		t.Errorf("after the end of the engine: got a sandbox on %q, opened %d times, want docker and 4", got, e.opened.Load())
	}

	// A paused sandbox belongs to its engine, even if that is missing.
	must.Do(t, c.Close())
	e = newTwoEngines()
	e.missing = errors.New("no daemon: install one")
	c = e.start(t, Options{State: state})
	refused("POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`)
	e.missing = nil
	if status, text := do(t, c, "POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`); status != 201 || e.by(id) != engine.Docker {
		t.Errorf("got %d %s on %q, want 201 on docker", status, text, e.by(id))
	}
}

// farRoom is an engine whose daemon is on another machine.
type farRoom struct{ *keepingRoom }

func (farRoom) Architecture() string { return "s390x" }

// TestFeaturesArchitecture checks that clients receive the architecture of the cloud's own engine,
// even if it runs on another machine.
func TestFeaturesArchitecture(t *testing.T) {
	t.Parallel()
	far := farRoom{&keepingRoom{fakeRoom: newTwoEngines().docker}}
	for own, want := range map[engine.Name]string{engine.Docker: "s390x", engine.Room: runtime.GOARCH} {
		c, err := start(t.Context(), Options{Dir: t.TempDir(), Python: &pyenv.Env{Python: "/bin/python3"}, Engine: own}, map[engine.Name]opener{
			engine.Docker: func(context.Context, *Cloud, string) (engine.Engine, error) { return far, nil },
			engine.Room:   opens(newTwoEngines().room),
		})
		must.Do(t, err)
		status, text := do(t, c, "GET", "/local/features", "")
		if status != 200 || !strings.Contains(text, fmt.Sprintf(`"architecture":%q`, want)) {
			t.Errorf("%s: got %d %s, want the architecture %s", own, status, text, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestEngineOfPaused checks that a sandbox of the cloud's own engine keeps this engine, even if a
// later cloud has another engine of its own.
func TestEngineOfPaused(t *testing.T) {
	t.Parallel()
	e, state := newTwoEngines(), t.TempDir()
	c := e.start(t, Options{State: state})
	id := create(t, c, `{"templateID":"base","autoPause":true}`)
	must.Do(t, c.Close())
	e = newTwoEngines()
	c = e.start(t, Options{State: state, Engine: engine.Docker})
	if status, text := do(t, c, "POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`); status != 201 || e.by(id) != engine.Room {
		t.Errorf("got %d %s on %q, want 201 on the room", status, text, e.by(id))
	}
}

// TestEngineOfSnapshot checks that a snapshot has the engine of its sandbox.
func TestEngineOfSnapshot(t *testing.T) {
	t.Parallel()
	e := newTwoEngines()
	c := e.start(t, Options{})
	id := create(t, c, `{"templateID":"base-docker"}`)
	status, text := do(t, c, "POST", "/sandboxes/"+id+"/snapshots", `{"name":"kept"}`)
	if status != 201 {
		t.Fatalf("got %d %s, want a snapshot", status, text)
	}
	if got := e.by(create(t, c, `{"templateID":"kept"}`)); got != engine.Docker {
		t.Errorf("the snapshot runs on %q, want docker", got)
	}
}

// TestPromisesRefuse checks that a feature that an engine does not promise is refused with
// its name and the reason, before it is used.
func TestPromisesRefuse(t *testing.T) {
	t.Parallel()
	e := newTwoEngines()
	e.docker.lacks = engine.Everything()
	for _, f := range []engine.Feature{engine.Volumes, engine.HeaderRules, engine.Pauses, engine.SavedFiles, engine.IdleLimits} {
		e.docker.lacks.Lack("the moon is new for "+string(f), f)
	}
	c := e.start(t, Options{State: t.TempDir()})
	createVolume(t, c, "data")
	refused := func(path, body, what string, f engine.Feature) {
		t.Helper()
		want := fmt.Sprintf("not supported by the docker engine: %s: the moon is new for %s", what, f)
		if status, text := do(t, c, "POST", path, body); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s %s: got %d %s, want 400 and %q", path, body, status, text, want)
		}
	}
	const sandboxes = "/v2/sandboxes"
	refused(sandboxes, `{"templateID":"base-docker","volumeMounts":[{"name":"data","path":"/data"}]}`, "volumeMounts", engine.Volumes)
	refused(sandboxes, `{"templateID":"base-docker","network":{"allowOut":["a.test"],"denyOut":["0.0.0.0/0"],"rules":{"a.test":[{"transform":{"headers":{"X":"y"}}}]}}}`, "network.rules", engine.HeaderRules)
	refused(sandboxes, `{"templateID":"base-docker","autoPause":true}`, "autoPause", engine.Pauses)
	refused(sandboxes, `{"templateID":"base-docker","autoPause":true,"autoPauseMemory":false}`, "autoPause", engine.SavedFiles)
	refused(sandboxes, `{"templateID":"base-docker","idleTimeout":60}`, "idleTimeout", engine.IdleLimits)
	if len(e.docker.boxes) > 0 {
		t.Errorf("%d sandboxes were started", len(e.docker.boxes))
	}
	id := create(t, c, `{"templateID":"base-docker"}`)
	refused("/sandboxes/"+id+"/pause", `{}`, string(engine.Pauses), engine.Pauses)
	refused("/sandboxes/"+id+"/snapshots", `{}`, string(engine.SavedFiles), engine.SavedFiles)
	refused("/sandboxes/"+id+"/fork", `{}`, string(engine.SavedFiles), engine.SavedFiles)
	if status, text := do(t, c, "GET", "/sandboxes/"+id, ""); status != 200 || !strings.Contains(text, `"state":"running"`) {
		t.Errorf("got %d %s, want it to run on", status, text)
	}
	create(t, c, `{"templateID":"base-room","autoPause":true}`)
}

func TestEngineReport(t *testing.T) {
	t.Parallel()
	e := newTwoEngines()
	c := e.start(t, Options{})
	e.missing = errors.New("no daemon")
	if _, err := c.EngineReport(engine.Docker); !errors.Is(err, e.missing) {
		t.Errorf("got error %v, want %v", err, e.missing)
	}
	e.missing = nil
	if report, err := c.EngineReport(engine.Docker); err != nil || report.Engine != engine.Docker {
		t.Errorf("got %+v and error %v, want docker", report, err)
	}
	if _, err := c.EngineReport("moon"); err == nil {
		t.Error("an engine that nobody knows: got no error")
	}
}

// TestEngineWithoutRules checks that a cloud refuses network rules and questions about hosts for an
// engine whose sandboxes have a network of their own, and does not send programs to a proxy.
func TestEngineWithoutRules(t *testing.T) {
	t.Parallel()
	const why = "its network is not ours"
	pods := newTwoEngines().room
	pods.name, pods.lacks = engine.Kubernetes, engine.Promises{engine.NetworkRules: why}
	o := Options{Engine: engine.Kubernetes, Python: &pyenv.Env{Level: pyenv.Absent}, Dir: t.TempDir()}
	open := map[engine.Name]opener{engine.Kubernetes: opens(pods)}
	asking := o
	asking.Ask = func(context.Context, string, string, int) bool { return true }
	if _, err := start(t.Context(), asking, open); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("a cloud with questions: got %v", err)
	}
	pods.ended = make(chan struct{})
	c, err := start(t.Context(), o, open)
	must.Do(t, err)
	defer c.Close()
	for body, want := range map[string]int{
		`{"templateID": "base"}`:                                                                     http.StatusCreated,
		`{"templateID": "base", "allow_internet_access": false}`:                                     http.StatusCreated,
		`{"templateID": "base", "network": {"denyOut": ["192.0.2.0/24"]}}`:                           http.StatusBadRequest,
		`{"templateID": "base", "network": {"denyOut": ["0.0.0.0/0"], "allowOut": ["example.com"]}}`: http.StatusBadRequest,
		`{"templateID": "base", "network": {"egressProxy": {"address": "203.0.113.9:1080"}}}`:        http.StatusBadRequest,
	} {
		status, answer := do(t, c, http.MethodPost, "/sandboxes", body)
		if status != want || want == http.StatusBadRequest && !strings.Contains(answer, "not supported by the kubernetes engine: network rules (allowOut, denyOut, dnsServers, egressProxy, ask): "+why) {
			t.Errorf("%s: got status %d, %s", body, status, answer)
		}
	}
	for id, box := range pods.boxes {
		if config := box.options.Config; config.Proxy || config.CloudPort != 0 {
			t.Errorf("the programs of %s are sent to a proxy that is not there: %+v", id, config)
		}
	}
}
