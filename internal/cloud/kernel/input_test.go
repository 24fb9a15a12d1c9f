//go:build linux

package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// A thread that asks a question after its cell has ended is told at once that
// there is no answer: otherwise the next question would wait behind it for ever.
func TestQuestionAfterTheEnd(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		file := filepath.Join(t.TempDir(), "go")
		allow := func(r *jupyter.ExecuteRequest) { r.AllowStdin = true }
		s.wait(s.submit(fmt.Sprintf(`
import os, threading, time
def late():
    while not os.path.exists(%q):
        time.sleep(0.01)
    try:
        input('late')
    except EOFError:
        print('nobody answers')
threading.Thread(target=late).start()`, file), allow))
		must.Do(t, os.WriteFile(file, nil, 0o600))
		for e := s.next(); !strings.Contains(string(e.Content), "nobody answers"); e = s.next() {
			if e.Channel == jupyter.Stdin {
				t.Fatal("the client was asked")
			}
		}
	})
}
