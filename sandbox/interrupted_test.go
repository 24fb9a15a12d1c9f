package sandbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
)

// The error of code that was interrupted says why there is no traceback.
func TestInterruptedErrorSaysThatNobodyWaited(t *testing.T) {
	t.Parallel()
	const unwaited = "did not wait for it to stop, so there is no traceback"
	for _, ended := range []bool{false, true} {
		err := &sandbox.InterruptedError{Context: "c", Ran: time.Second, Cause: context.DeadlineExceeded, Ended: ended}
		if strings.Contains(err.Error(), unwaited) == ended {
			t.Errorf("ended %v: got %q, want %q in it only if the code had not stopped", ended, err, unwaited)
		}
	}
}
