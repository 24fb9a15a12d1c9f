package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/sandbox"
)

// The refusal of a package that was named by an import says where imports are allowed.
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

// All errors of Begin are without the values of Params.Redact.
func TestBeginRedactsErrors(t *testing.T) {
	t.Parallel()
	const secret = "t0k3n-0123456789"
	sb := &sandbox.Sandbox{Packages: new(sandbox.Packages)}
	for name, p := range map[string]*Params{
		"the guard":         {Guard: &Guard{Allow: []string{"a " + secret}}},
		"the guard, a link": {Guard: &Guard{}, Packages: []string{"https://user:" + secret + "@host/x"}},
		"a link to install": {Packages: []string{"https://user:" + secret + "@host/x"}},
	} {
		p.Redact = []string{secret}
		_, err := Begin(t.Context(), sb, p)
		if err == nil || strings.Contains(err.Error(), secret[:minBeginning]) || !strings.Contains(err.Error(), redacted) {
			t.Errorf("%s: got %v, want an error with %s in place of the secret", name, err, redacted)
		}
		if !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("%s: got %v, want an invalid argument", name, err)
		}
	}
}
