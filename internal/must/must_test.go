package must_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// recorder is a test that keeps the words with which it ended.
type recorder struct {
	testing.TB

	helper bool
	words  string
}

func (r *recorder) Helper() { r.helper = true }

func (r *recorder) Fatal(args ...any) {
	r.words = fmt.Sprint(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.words = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// ended runs f in a goroutine of its own. It returns the words with which f ended the test, and
// whether f came to its end.
func ended(f func(testing.TB)) (r *recorder, whole bool) {
	r = &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
		whole = true
	}()
	<-done
	return r, whole
}

func TestMust(t *testing.T) {
	t.Parallel()
	wrapped := fmt.Errorf("read: %w", io.EOF)
	for name, tt := range map[string]struct {
		f    func(testing.TB)
		want string // "": the test continues
	}{
		"no error":          {func(t testing.TB) { must.Do(t, nil) }, ""},
		"an error":          {func(t testing.TB) { must.Do(t, wrapped) }, "read: EOF"},
		"the error":         {func(t testing.TB) { must.Is(t, io.EOF, io.EOF) }, ""},
		"the error wrapped": {func(t testing.TB) { must.Is(t, wrapped, io.EOF) }, ""},
		"another error":     {func(t testing.TB) { must.Is(t, errors.ErrUnsupported, io.EOF) }, "got unsupported operation, want EOF"},
		"none of two":       {func(t testing.TB) { must.Is(t, nil, io.EOF) }, "got <nil>, want EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, whole := ended(tt.f)
			if r.words != tt.want || whole != (tt.want == "") || !r.helper {
				t.Errorf("ended with %q, whole %v, marked as a helper %v, want %q, %v, true", r.words, whole, r.helper, tt.want, tt.want == "")
			}
		})
	}
}
