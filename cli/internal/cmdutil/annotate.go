package cmdutil

import (
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/e2bctl/e2bctl/cli/internal/ci"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// Annotates reports whether the command speaks to a runner of GitHub
// Actions: --annotate was given, and the command runs in a step.
func (f *Factory) Annotates() bool { return f.flags.annotate && ci.InActions(os.Getenv) }

// Annotate shows an error above the log of the job, if the command
// annotates. Standard error must be at the beginning of a line.
func (f *Factory) Annotate(message string) { f.tellRunner(ci.Error("e2bctl", message)) }

// Group folds the lines that go to standard error until end is called, if the command annotates.
func (f *Factory) Group(title string) (end func()) {
	f.tellRunner(ci.Group(title))
	return func() { f.tellRunner(ci.EndGroup) }
}

// Mask has the runner hide a secret in the log, if the command annotates. It
// writes no secret to a standard error that is a file: a file is not the log.
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

// masking is a transport that has each key and token masked before it is first sent.
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
