package cmdutil

import (
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/e2bctl/e2bctl/cli/internal/ci"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// Annotates reports whether the command writes commands for the runner of GitHub Actions. That is
// the case if --annotate was given and the command runs in a step.
func (f *Factory) Annotates() bool { return f.flags.annotate && ci.InActions(os.Getenv) }

// Annotate shows an error above the log of the job, if [Factory.Annotates] is true. Standard error
// must be at the beginning of a line.
func (f *Factory) Annotate(message string) { f.tellRunner(ci.Error("e2bctl", message)) }

// Group folds the lines that go to standard error until end is called, if [Factory.Annotates] is
// true.
func (f *Factory) Group(title string) (end func()) {
	f.tellRunner(ci.Group(title))
	return func() { f.tellRunner(ci.EndGroup) }
}

// Mask makes the runner hide a secret in the log, if [Factory.Annotates] is true. If standard error
// is a file, Mask writes nothing: a file is not the log, and it would then contain the secret.
func (f *Factory) Mask(secret string) {
	if secret != "" && !f.IO.ErrIsFile {
		f.tellRunner(ci.Mask(secret))
	}
}

func (f *Factory) tellRunner(command string) {
	if f.Annotates() {
		_, _ = io.WriteString(f.IO.RawErr, command) // as all progress
	}
}

// masking is a transport that masks each key and token in the log of the job before it first sends
// it.
type masking struct {
	http.RoundTripper
	mask func(secret string)

	mu     sync.Mutex
	masked map[string]bool
}

func (f *Factory) newMasking() *masking {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 512, 512 // as that of the SDK
	return &masking{RoundTripper: transport, mask: f.Mask, masked: map[string]bool{}}
}

// RoundTrip implements [http.RoundTripper].
func (m *masking) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	for _, header := range []string{protocol.HeaderAPIKey, protocol.HeaderAccess, protocol.HeaderTraffic} {
		if secret := r.Header.Get(header); !m.masked[secret] {
			m.mask(secret)
			m.masked[secret] = true
		}
	}
	m.mu.Unlock()
	return m.RoundTripper.RoundTrip(r)
}
