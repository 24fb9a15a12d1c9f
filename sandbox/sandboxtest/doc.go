// Package sandboxtest gives tests a cloud of their own, in the manner of
// net/http/httptest.
package sandboxtest
