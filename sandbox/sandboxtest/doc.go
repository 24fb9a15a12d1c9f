// Package sandboxtest provides each test with its own local cloud, like net/http/httptest:
//
//	func TestAgent(t *testing.T) {
//		sb := sandboxtest.New(t).Create(t)
//		if got := sandboxtest.Run(t, sb, "echo hello"); got != "hello" {
//			t.Errorf("got %q, want hello", got)
//		}
//	}
//
// Prepare the Python of the sandboxes once per machine, as in this example. If it is not prepared,
// New logs the missing parts to the test:
//
//	func TestMain(m *testing.M) {
//		if _, err := local.Setup(context.Background(), os.Stderr); err != nil {
//			log.Print(err)
//		}
//		m.Run()
//	}
//
// [Run], [Eval] and [RunCode] run commands and code whose errors end the test.
//
// Each cloud has its own address, key and sandboxes, so tests may run in parallel. Nothing has
// to be closed.
package sandboxtest
