package engine

import (
	"errors"
	"io"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestLack checks that a lack is found by its feature and by its reason, and by no other.
func TestLack(t *testing.T) {
	t.Parallel()
	err := errors.Join(Lackf(Volumes, "the disk: %w", io.EOF))
	must.Is(t, err, &LackError{Feature: Volumes})
	must.Is(t, err, io.EOF)
	for _, other := range []error{&LackError{Feature: Mounts}, Lackf(Volumes, "another reason")} {
		if errors.Is(err, other) {
			t.Errorf("%v is %v", err, other)
		}
	}
	if want := "sandboxes cannot have volumes: the disk: EOF"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

// TestCheckOptions checks that each option needs its feature, and no other.
func TestCheckOptions(t *testing.T) {
	t.Parallel()
	options := map[Feature]SandboxOptions{
		Images:       {Image: &Image{}},
		SharedLayers: {Layers: []string{"/x"}},
		Volumes:      {Volumes: []Volume{{}}},
		Mounts:       {Mounts: []Mount{{}}},
		HeaderRules:  {Authority: []byte("x")},
	}
	for _, missing := range Features {
		p := Everything()
		p.Lack("for a test", missing)
		must.Do(t, p.CheckOptions(SandboxOptions{}))
		for feature, o := range options {
			err := p.CheckOptions(o)
			if lacks := errors.Is(err, &LackError{Feature: feature}); lacks != (feature == missing) {
				t.Errorf("without %s, with the option of %s: got %v", missing, feature, err)
			}
		}
	}
}
