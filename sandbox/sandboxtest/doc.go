// Package sandboxtest provides each test with a cloud of its own, in the manner of
// net/http/httptest:
//
//	func TestAgent(t *testing.T) {
//		sb := sandboxtest.New(t).Create(t)
//		...
//	}
//
// Each cloud has its own address, key and sandboxes, so tests may run in
// parallel. Nothing has to be closed.
package sandboxtest
