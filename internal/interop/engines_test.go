//go:build linux

package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/enginetest"
	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv/wasmtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// oneAtATime has a client run its cases one after the other. On a busy machine the daemon
// takes too long to pause several containers at once, and the pause is answered with 504.
var oneAtATime = []string{"AT_ONCE=1"}

// TestDockerClients runs all cases of the newest SDKs in containers, but for those that need
// features that the engine does not promise.
func TestDockerClients(t *testing.T) {
	enginetest.Need(t)
	program := e2bctl(t)
	python := preparedPython(t, program)
	t.Setenv("PATH", filepath.Dir(python)+":"+os.Getenv("PATH")) // the Python of the daemon's images
	daemon := dockertest.Own(t, t.TempDir())
	addUsualImage(t, daemon, python)
	t.Setenv("DOCKER_HOST", daemon.Host())
	promises := promisesOf(t, local.WithEngine(local.EngineDocker), local.WithBinary(program))

	service := newHostService()
	defer service.server.Close()
	server := up(t, program, t.TempDir(), "--engine", "docker", "--registry-mirror", "docker.io="+ready(t, mirrorOnce), "--host-service", service.flag())
	defer server.down(t)
	server.env = append(server.env, service.variable())
	must.Do(t, buildGateway(server.env))
	t.Run("js", func(t *testing.T) {
		without := leaveOut(t, engine.Docker, promises, func(one leftOut) []string { return one.js })
		driveJS(t, slices.Concat(without, oneAtATime, server.env), "newest", "cases")
	})
	t.Run("python", func(t *testing.T) {
		without := leaveOut(t, engine.Docker, promises, func(one leftOut) []string { return one.python })
		drivePython(t, slices.Concat(without, oneAtATime, server.env), "newest", "cases", "asynchronous")
	})
}

// TestWasmClients runs the cases of the newest SDKs in sandboxes of WebAssembly, but for those
// that need features that the engine does not promise.
func TestWasmClients(t *testing.T) {
	wasmtest.Need(t)
	program := e2bctl(t)
	promises := promisesOf(t, local.WithEngine(local.EngineWasm))
	server := up(t, program, t.TempDir(), "--engine", "wasm")
	defer server.down(t)
	t.Run("js", func(t *testing.T) {
		without := leaveOut(t, engine.Wasm, promises, func(one leftOut) []string { return one.js })
		driveJS(t, append(without, server.env...), "newest", "cases")
	})
	t.Run("python", func(t *testing.T) {
		without := leaveOut(t, engine.Wasm, promises, func(one leftOut) []string { return one.python })
		drivePython(t, append(without, server.env...), "newest", "cases", "asynchronous")
	})
}

// preparedPython returns the Python that "e2bctl local setup" prepares.
func preparedPython(t *testing.T, program string) string {
	t.Helper()
	setup := exec.CommandContext(t.Context(), program, "local", "setup")
	var stderr strings.Builder
	setup.Stderr = &stderr
	python, err := setup.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", setup, err, &stderr)
	}
	return strings.TrimSpace(string(python))
}

// promisesOf returns for each feature the reason why a cloud lacks it, or "" if the cloud has
// it.
func promisesOf(t *testing.T, options ...local.Option) map[engine.Feature]string {
	t.Helper()
	cloud, err := local.Start(t.Context(), options...)
	must.Do(t, err)
	defer cloud.Close()
	missing := map[engine.Feature]string{}
	for _, p := range cloud.Report().Promises {
		missing[engine.Feature(p.Feature)] = p.Missing
	}
	return missing
}
