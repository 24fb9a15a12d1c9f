//go:build linux

package cloud

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// TestTooSmallLimits checks that a client that creates a sandbox learns from the error that nothing
// can start within the limits. It is an error of the request, and not of the server.
func TestTooSmallLimits(t *testing.T) {
	t.Parallel()
	e := newTwoEngines()
	c := e.start(t, Options{})
	e.docker.refuses = fmt.Errorf("docker: %w", engine.Limits{MemoryBytes: 1}.Check())
	if status, text := do(t, c, "POST", "/v2/sandboxes", `{"templateID":"base-docker"}`); status != 400 || !strings.Contains(text, "1 bytes of memory, and 16777216 are the least") {
		t.Errorf("got %d %s, want 400 with the limit", status, text)
	}
}

// TestMoreThanTheMachineHas checks that a creation is refused if it asks for more than the machine has.
func TestMoreThanTheMachineHas(t *testing.T) {
	t.Parallel()
	c, fake := startFake(t, Options{})
	for asked, want := range map[string]string{
		`{"cpuCount":4096}`:                   "resources.cpuCount is 4096, and the machine of this local cloud has ",
		`{"memoryBytes":9223372036854775807}`: "resources.memoryBytes is 9223372036854775807, and the machine of this local cloud has ",
	} {
		if status, text := do(t, c, "POST", "/v2/sandboxes", `{"templateID":"base","resources":`+asked+`}`); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: got %d %s, want 400 with %q", asked, status, text, want)
		}
	}
	if len(fake.boxes) > 0 {
		t.Errorf("got %d sandboxes, want none", len(fake.boxes))
	}
}

// TestNoDiskLimit checks that no disk limit is reported if the engine does not enforce one.
func TestNoDiskLimit(t *testing.T) {
	t.Parallel()
	e := newTwoEngines()
	c := e.start(t, Options{Limits: engine.Limits{DiskBytes: 512 << 20}})
	shows := func(template, want string) {
		t.Helper()
		id := create(t, c, fmt.Sprintf(`{"templateID":%q}`, template))
		if status, text := do(t, c, "GET", "/sandboxes/"+id, ""); status != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: got %d %s, want %s", template, status, text, want)
		}
	}
	shows("base", `"diskSizeMB":512`)
	shows("base-docker", `"diskSizeMB":512`)
	e.docker.lacks = engine.Promises{engine.DiskLimit: "the storage driver limits nothing"}
	shows("base-docker", `"diskSizeMB":0`)
	shows("base", `"diskSizeMB":512`)
}

// TestDockerIsBounded checks that limits of Docker containers do not exceed the maximum of one
// sandbox, in the container and in answers.
func TestDockerIsBounded(t *testing.T) {
	t.Parallel()
	e := newTwoEngines()
	o := Options{Most: engine.Bounds{CPUs: 1, MemoryBytes: 256 << 20}}
	o.Docker.CPUs, o.Docker.MemoryBytes = 4, 1<<30
	c := e.start(t, o)
	id := create(t, c, `{"templateID":"base-docker"}`)
	if got := e.docker.boxes[id].options.Limits; got.CPUs != 1 || got.MemoryBytes != 256<<20 {
		t.Errorf("the container has %+v, want the maximum", got)
	}
	if status, text := do(t, c, "GET", "/sandboxes/"+id, ""); status != 200 || !strings.Contains(text, `"cpuCount":1,"memoryMB":256`) {
		t.Errorf("got %d %s, want the maximum", status, text)
	}
}

// TestResize checks that answers and metrics have the new resources of a sandbox, also if some come
// from its template, and which answers refuse a resize.
func TestResize(t *testing.T) {
	t.Parallel()
	c, fake := startFake(t, Options{Limits: engine.Limits{CPUs: 1, MemoryBytes: 256 << 20, DiskBytes: 64 << 20}, Most: engine.Bounds{CPUs: 1, MemoryBytes: 1 << 30}})
	id := create(t, c, `{"templateID":"base","resources":{"diskBytes":134217728}}`)
	box := fake.boxes[id]
	path := "/local/sandboxes/" + id + "/resources"
	check := func(what string, id string, limits engine.Limits) {
		t.Helper()
		if got := fake.boxes[id].options.Limits; got.CPUs != limits.CPUs || got.MemoryBytes != limits.MemoryBytes || got.DiskBytes != limits.DiskBytes {
			t.Errorf("%s: the sandbox has %+v, want %+v", what, got, limits)
		}
		want := fmt.Sprintf(`"memoryMB":%d,"diskSizeMB":%d`, limits.MemoryBytes>>20, limits.DiskBytes>>20)
		if status, text := do(t, c, "GET", "/sandboxes/"+id, ""); status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: got %d %s, want %s", what, status, text, want)
		}
		want = fmt.Sprintf(`"memTotal":%d`, limits.MemoryBytes)
		if status, text := do(t, c, "GET", "/sandboxes/"+id+"/metrics", ""); status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: got the metrics %d %s, want %s", what, status, text, want)
		}
	}
	if status, text := do(t, c, "POST", path, `{"memoryBytes":536870912,"cpuCount":0.5}`); status != http.StatusNoContent {
		t.Fatalf("got %d %s, want %d", status, text, http.StatusNoContent)
	}
	has := engine.Limits{CPUs: 0.5, MemoryBytes: 512 << 20, DiskBytes: 128 << 20}
	check("a resize", id, has)

	for want, tt := range map[string]struct {
		fails  error
		body   string
		status int
	}{
		"400 bytes of memory, files in memory included, which is more than the 300 bytes asked for": {
			fmt.Errorf("room: %w", &engine.InUseError{Resource: "memory", Used: 400, Most: 300}), `{"memoryBytes":268435456}`, http.StatusConflict,
		},
		"resources.diskBytes: sandboxes cannot have disk limit: it is fixed": {engine.Lackf(engine.DiskLimit, "it is fixed"), `{"diskBytes":67108864}`, http.StatusBadRequest},
		"it is broken":              {errors.New("it is broken"), `{"diskBytes":67108864}`, http.StatusInternalServerError},
		"--max-cpus":                {nil, `{"cpuCount":2}`, http.StatusBadRequest},
		"--max-memory":              {nil, `{"memoryBytes":2147483648}`, http.StatusBadRequest},
		"16777216 are the least":    {nil, `{"memoryBytes":1}`, http.StatusBadRequest},
		"must not be negative":      {nil, `{"diskBytes":-1}`, http.StatusBadRequest},
		"must be greater than 0":    {nil, `{}`, http.StatusBadRequest},
		"cpuCount must be a number": {nil, `{"cpuCount":"many"}`, http.StatusBadRequest},
	} {
		box.fails.resize = tt.fails
		if status, text := do(t, c, "POST", path, tt.body); status != tt.status || !strings.Contains(text, want) {
			t.Errorf("%s: got %d %s, want %d with %q", tt.body, status, text, tt.status, want)
		}
		box.fails.resize = nil
		check(want, id, has)
	}

	if status, text := do(t, c, "POST", "/sandboxes/"+id+"/pause", ""); status != http.StatusNoContent {
		t.Fatalf("pause: got %d %s", status, text)
	}
	if status, text := do(t, c, "POST", path, `{"cpuCount":1}`); status != http.StatusNotFound || !strings.Contains(text, "it is paused, and connect resumes it") {
		t.Errorf("a paused sandbox: got %d %s, want %d", status, text, http.StatusNotFound)
	}
	if status, text := do(t, c, "POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`); status != http.StatusCreated {
		t.Fatalf("connect: got %d %s", status, text)
	}
	check("a resume", id, has)
	box.fails.thaw = errors.New("it is broken")
	if status, text := do(t, c, "POST", path, `{"cpuCount":1}`); status != http.StatusNotFound || !strings.Contains(text, "it is broken") {
		t.Errorf("a sandbox that cannot run on: got %d %s, want %d with the cause", status, text, http.StatusNotFound)
	}
}
