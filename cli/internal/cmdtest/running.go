package cmdtest

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
)

// Output is the standard output of a command that runs until its context ends.
type Output struct {
	Lines string
	Err   error  // the error of each write
	Seen  func() // called after each write; nil: nothing is called
}

// Write implements [io.Writer].
func (o *Output) Write(p []byte) (int, error) {
	o.Lines += string(p)
	if o.Seen != nil {
		o.Seen()
	}
	return len(p), o.Err
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
