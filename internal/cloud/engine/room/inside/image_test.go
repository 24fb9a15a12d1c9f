//go:build linux

package inside

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestOpenInRoot checks that links to a parent are followed while files are renamed
// elsewhere, for which the kernel makes the call fail.
func TestOpenInRoot(t *testing.T) {
	t.Chdir(t.TempDir())
	must.Do(t, errors.Join(os.MkdirAll("root/in", 0o755), os.WriteFile("root/file", nil, 0o644), os.Symlink(strings.Repeat("../", 1000)+"file", "root/in/link"), os.WriteFile("a", nil, 0o644)))
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := errors.Join(os.Rename("a", "b"), os.Rename("b", "a")); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 20_000 {
		f, err := openInRoot("in/link", unix.O_PATH)
		if err != nil {
			t.Error(err)
			break
		}
		_ = f.Close()
	}
	close(done)
	work.Wait()
}
