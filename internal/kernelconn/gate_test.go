package kernelconn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/e2bctl/e2bctl/internal/must"
)

// While a context is being ended, its calls and other ends of it wait, those of other contexts do
// not, and afterwards nothing is left of the gate.
func TestGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ks := New(Options{})
		must.Do(t, ks.waitAtGate(t.Context(), "a"))
		open, err := ks.shut(t.Context(), "a")
		must.Do(t, err)
		must.Do(t, ks.waitAtGate(t.Context(), "b"))

		gone, leave := context.WithCancelCause(t.Context())
		why := errors.New("why")
		leave(why)
		must.Is(t, ks.waitAtGate(gone, "a"), why)
		_, err = ks.shut(gone, "a")
		must.Is(t, err, why)
		must.Is(t, ks.Restart(gone, "a"), why)

		passed := make(chan string, 3)
		go func() {
			if err := ks.waitAtGate(t.Context(), "a"); err != nil {
				t.Error(err)
			}
			passed <- "call"
		}()
		go func() {
			again, err := ks.shut(t.Context(), "a")
			passed <- "end"
			if err != nil {
				t.Error(err)
				return
			}
			again()
		}()
		synctest.Wait()
		if len(passed) > 0 {
			t.Errorf("a %s passed a gate that is shut", <-passed)
		}
		open()
		synctest.Wait()
		if len(passed) != 2 || len(ks.ending) != 0 {
			t.Errorf("%d of 2 passed the gate, and %d gates are left", len(passed), len(ks.ending))
		}
		must.Do(t, ks.waitAtGate(t.Context(), "a"))
	})
}
