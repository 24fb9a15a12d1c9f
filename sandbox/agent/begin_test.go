package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
)

// What a run refuses to install because it is for an import says where that is allowed.
func TestAdviseImport(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"json", "numpy.*"} {
		_, installing := install(t.Context(), new(sandbox.Packages), &Params{Packages: []string{name}})
		_, guarding := new(Guard).config([]string{name})
		for _, err := range []error{installing, guarding} {
			if refused, ok := errors.AsType[*sandbox.RequirementError](err); !ok || strings.Contains(refused.Reason, "Guard") || !strings.Contains(err.Error(), "name it in Guard.Allow") {
				t.Errorf("%s: got %v, want advice about Guard.Allow that only the run adds", name, err)
			}
		}
	}
	_, err := install(t.Context(), new(sandbox.Packages), &Params{Packages: []string{"--pre"}})
	if err == nil || strings.Contains(err.Error(), "Guard") {
		t.Errorf("an option: got %v, want an error without advice about imports", err)
	}
}
