package sandbox

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// The text of a lock says the same as its Go value.
func TestLockText(t *testing.T) {
	t.Parallel()
	lock := &LockFile{Comment: "For tests.", Packages: []LockedPackage{
		{Name: "humanize", Version: "4.9.0", SHA256: []string{sumA, sumB}},
		{Name: "six", Version: "1.16.0", SHA256: []string{sumA}, File: "six-1.16.0-py3-none-any.whl"},
	}}
	text, err := lock.MarshalText()
	must.Do(t, err)
	var read LockFile
	must.Do(t, read.UnmarshalText(text))
	if diff := cmp.Diff(lock, &read); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
}

// A refusal is an invalid argument that names what was refused, and leaves the
// lock unchanged.
func TestRequirementErrors(t *testing.T) {
	t.Parallel()
	lock := LockFile{Comment: "before"}
	var none *LockFile
	_, absent := none.MarshalText()
	_, requirement := parseRequirements([]string{"ok", "--pre"})
	for want, err := range map[string]error{
		"a==1":  lock.UnmarshalText([]byte("a==1")),
		"":      absent,
		"--pre": requirement,
	} {
		refused, ok := errors.AsType[*RequirementError](err)
		if !ok {
			t.Errorf("%q: got %v, want a RequirementError", want, err)
			continue
		}
		if refused.Requirement != want {
			t.Errorf("the error names %q, want %q", refused.Requirement, want)
		}
		if !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("%v is not api.ErrInvalidArgument", err)
		}
	}
	if lock.Comment != "before" {
		t.Errorf("a refused text changed the lock: %+v", lock)
	}
}
