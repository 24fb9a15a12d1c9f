package patience

import (
	"testing"
	"testing/synctest"
	"time"
)

// A failed is a test that records how it ended.
type failed struct {
	testing.TB
	message string
}

func (f *failed) Helper() {}

func (f *failed) Fatalf(format string, _ ...any) {
	f.message = format
	panic(f)
}

// failure returns the format of the message with which use failed, or "" if it did not.
func failure(t *testing.T, use func(testing.TB)) string {
	t.Helper()
	f := &failed{TB: t}
	func() {
		defer func() {
			if got := recover(); got != nil && got != any(f) {
				panic(got)
			}
		}()
		use(f)
	}()
	return f.message
}

func TestLimit(t *testing.T) {
	if got := limit(""); got != time.Minute {
		t.Errorf("limit is %v on a machine of one's own, want a minute", got)
	}
	if got := limit("true"); got != 5*time.Minute {
		t.Errorf("limit is %v in CI, want five minutes", got)
	}
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ready := start.Add(Limit / 2)
		Until(t, "it is time", func() bool { return time.Now().After(ready) })
		if got := failure(t, func(t testing.TB) { Until(t, "never", func() bool { return false }) }); got == "" {
			t.Error("a wait in vain did not fail")
		}
		if took := time.Since(ready); took < Limit || took > Limit+time.Second {
			t.Errorf("a wait in vain took %v, want %v", took, Limit)
		}
	})
}

func TestReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := make(chan int)
		go func() { c <- 1 }()
		if got := Receive(t, "a number", c); got != 1 {
			t.Errorf("Receive returned %d, want 1", got)
		}
		if got := failure(t, func(t testing.TB) { Receive(t, "a number", c) }); got == "" {
			t.Error("a wait in vain did not fail")
		}
	})
}

func TestSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		Soon(t, "work that a busy machine delays once", time.Second, func() {
			if runs++; runs == 1 {
				time.Sleep(time.Hour) //nolint:forbidigo // its time is fake
			}
		})
		if runs != 2 {
			t.Errorf("Soon ran it %d times, want 2", runs)
		}
		waits := func() { time.Sleep(time.Second) } //nolint:forbidigo // its time is fake
		if got := failure(t, func(t testing.TB) { Soon(t, "work that waits", time.Second, waits) }); got == "" {
			t.Error("work that always waits did not fail")
		}
	})
}

func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := Context(t)
		start := time.Now()
		<-ctx.Done()
		if took := time.Since(start); took != Limit {
			t.Errorf("the context ended after %v, want %v", took, Limit)
		}
	})
}
