// Package clienttest gives tests HTTP clients with connections of their own.
//
// The connections of [http.DefaultClient] belong to all tests of a process. httptest.Server.Close closes
// those that are idle, and net/http counts a connection as idle shortly before it returns the answer. So
// the end of one test can break a request of another.
package clienttest

import (
	"net/http"
	"testing"
)

// New returns a client. Its idle connections are closed when the test ends.
func New(t testing.TB) *http.Client {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
