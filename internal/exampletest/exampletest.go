// Package exampletest lets the examples of the public packages run as tests. It skips examples and
// provides a service for them. An example cannot skip itself or start a service, because it has no
// testing.T.
package exampletest

import (
	"context"
	"errors"
	"flag"
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

// StartCloud starts a cloud in this process. It sets the environment variables that name the cloud,
// so that programs use it as their service. The returned function ends the cloud and restores the
// variables.
func StartCloud() (end func()) {
	cloud, err := local.Start(context.Background())
	if err != nil {
		panic(err)
	}
	var restore []func() error
	for _, setting := range cloud.Env() {
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
		err := cloud.Close()
		for _, f := range restore {
			err = errors.Join(err, f())
		}
		if err != nil {
			panic(err)
		}
	}
}
