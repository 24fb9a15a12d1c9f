package network

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestPartial checks which rules need an engine whose connections the cloud makes.
func TestPartial(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		internet    bool
		allow, deny []string
		want        bool
	}{
		{true, nil, nil, false},
		{false, nil, nil, false},
		{true, nil, []string{allTraffic}, false},
		{true, nil, []string{"192.0.2.0/24"}, true},
		{true, []string{"192.0.2.1"}, nil, true},
		{false, []string{"192.0.2.1"}, nil, true},
		{true, []string{"example.com"}, []string{allTraffic}, true},
	} {
		rules, err := ParseRules(test.internet, test.allow, test.deny)
		must.Do(t, err)
		if got := rules.Partial(); got != test.want {
			t.Errorf("internet %v, allow %q, deny %q: got %v", test.internet, test.allow, test.deny, got)
		}
	}
	if (*Rules)(nil).Partial() {
		t.Error("no rules are partial")
	}
	asking, err := ParseRules(true, nil, []string{allTraffic})
	must.Do(t, err)
	asking, err = asking.WithAsking()
	must.Do(t, err)
	if !asking.Partial() {
		t.Error("rules with questions are not partial")
	}
}
