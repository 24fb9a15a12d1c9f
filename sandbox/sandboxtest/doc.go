// Package sandboxtest provides each test with its own local cloud, like net/http/httptest:
//
//	func TestAgent(t *testing.T) {
//		sb := sandboxtest.New(t).Create(t)
//		...
//	}
//
// The Python of the sandboxes is prepared once per machine. Otherwise New logs the missing
// parts to the test:
//
//	func TestMain(m *testing.M) {
//		if _, err := local.Setup(context.Background(), os.Stderr); err != nil {
//			log.Print(err)
//		}
//		m.Run()
//	}
//
// Each cloud has its own address, key and sandboxes, so tests may run in parallel. Nothing has
// to be closed.
package sandboxtest
