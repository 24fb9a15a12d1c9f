package network

import (
	"context"
	"errors"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestDenialsAfterAnAnswerNameTheirRule checks a name that a program allows, with an address that
// another rule denies. The denial names that rule, and not the rule that turns off the internet.
func TestDenialsAfterAnAnswerNameTheirRule(t *testing.T) {
	t.Parallel()
	for _, internet := range []bool{true, false} {
		rules, err := mustRules(t, internet, "", "0.0.0.0/0 198.51.100.0/24").WithAsking()
		must.Do(t, err)
		d := &Dialer{Resolver: world}
		recording(t, d)
		e := &Egress{Dialer: d, Rules: rules, Denials: &Denials{}, Asks: new(Asks)}
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); (&program{}).serve(ctx, e.Asks, "other.test:443") }()
		conn, err := e.Dial(t.Context(), "other.test", portHTTPS)
		end()
		<-done
		if denied, ok := errors.AsType[*DeniedError](err); !ok || denied.Rule != ruleDenied {
			t.Errorf("internet %v: got %v and error %v, want a denial by %q", internet, conn, err, ruleDenied)
		}
	}
}
