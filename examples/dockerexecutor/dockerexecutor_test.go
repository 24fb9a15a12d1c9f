//go:build linux

package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/examples/codeagent/loop"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dockertest.Ending{M: m}) }

// TestDocker runs the whole example on the tests' own daemon, without a model.
func TestDocker(t *testing.T) {
	daemon := dockertest.Shared(t)
	t.Setenv("DOCKER_HOST", daemon.Host())
	var out strings.Builder
	if err := run(t.Context(), &out, &loop.Model{Script: answers}, dockertest.Image, fibonacci, local.WithBinary(dockertest.Program(t))); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"mem_limit    536870912\ncpu_quota    50000\npids_limit   100\ncap_drop     ALL\nsecurity_opt no-new-privileges\nuser         nobody\nnetwork      off\n",
		"\n=> 2046711111473984623691759\n",
		"docker ps: " + dockertest.Image + " Up ",
		"FileNotFoundError: ",
		"docker ps: no container\n=> the container is gone\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %q, want %q in it", out.String(), want)
		}
	}
	if left := daemon.Docker(t, "ps", "--all", "--quiet"); left != "" {
		t.Errorf("containers are left: %s", left)
	}
}

// TestNoDocker checks that the error on a machine without a daemon names the
// packages to install.
func TestNoDocker(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///no/such.sock")
	err := run(t.Context(), t.Output(), &loop.Model{Script: answers}, "", fibonacci)
	if err == nil || !strings.Contains(err.Error(), "install") || !strings.Contains(err.Error(), "/no/such.sock") {
		t.Errorf("got %v, want what was tried and what to install", err)
	}
}
