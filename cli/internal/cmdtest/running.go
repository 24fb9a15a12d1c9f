package cmdtest

import (
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Output keeps the output of a command. Several goroutines may write and read it, also while the command
// runs. The zero value is ready to use.
type Output struct {
	Err  error  // the error of each write
	Seen func() // called after each write; nil: nothing is called

	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	o.text.Write(p)
	o.mu.Unlock()
	if o.Seen != nil {
		o.Seen()
	}
	return len(p), o.Err
}

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Refuses checks that nothing listens at the address of a URL.
func Refuses(t *testing.T, url string) {
	t.Helper()
	address, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection to %s: got error %v, want none listening", url, err)
	}
}
