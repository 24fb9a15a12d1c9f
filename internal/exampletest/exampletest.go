// Package exampletest lets the examples of the public packages run as tests. It skips examples and
// provides a service for them. An example cannot skip itself or start a service, because it has no
// testing.T.
package exampletest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// Check skips the examples of a package if this machine cannot run a cloud, as sandboxtest.New skips
// a test. Check also skips the examples if the flag -short is set. A package calls Check from a test
// that is called TestExamples. This test runs before the examples, and -run Example also selects it.
func Check(t *testing.T) {
	t.Cleanup(func() {
		if t.Skipped() {
			skipExamples(t)
		}
	})
	if testing.Short() {
		t.Skip("the examples need sandboxes")
	}
	sandboxtest.New(t, local.WithWarm(0))
}

// skipExamples adds the names of all examples to the pattern in the flag -skip.
func skipExamples(t *testing.T) {
	skip := flag.Lookup("test.skip").Value
	pattern := "^Example"
	if given := skip.String(); given != "" {
		pattern = "(" + given + ")|" + pattern
	}
	if err := skip.Set(pattern); err != nil {
		t.Error(err)
	}
}

// shared is the cloud of the examples of a program. Examples run one after the other.
var shared *local.Cloud

// StartCloud starts a cloud in this process for its first call, and returns the same cloud for later calls.
// A cloud of its own would cost most examples far more than the rest. StartCloud sets the environment
// variables that name the cloud, so that programs use it as their service. The returned function restores
// the variables. [Ending] ends the cloud.
func StartCloud() (end func()) {
	if shared == nil {
		cloud, err := local.Start(context.Background())
		if err != nil {
			panic(err)
		}
		shared = cloud
	}
	var restore []func() error
	for _, setting := range shared.Env() {
		name, value, _ := strings.Cut(setting, "=")
		before, was := os.LookupEnv(name)
		restore = append(restore, func() error {
			if !was {
				return os.Unsetenv(name)
			}
			return os.Setenv(name, before)
		})
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	return func() {
		var err error
		for _, f := range restore {
			err = errors.Join(err, f())
		}
		if err != nil {
			panic(err)
		}
	}
}

// Ending are the tests and examples of a program. Its Run ends the cloud of the examples after them.
type Ending struct{ *testing.M }

// Run runs the tests and examples.
func (e Ending) Run() int {
	code := e.M.Run()
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "close the cloud of the examples:", err)
		return 1
	}
	return code
}
