package sandboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/exampletest"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestExamples(t *testing.T) { exampletest.Check(t) }

func ExampleNew() {
	t := newT() // only here: in a test it is its *testing.T
	defer t.end()

	cloud := sandboxtest.New(t)
	sb := cloud.Create(t)
	fmt.Println(sandboxtest.Run(t, sb, "echo hello"))

	// An hour later its life is over.
	cloud.Advance(time.Hour)
	_, err := sb.Info(t.Context())
	fmt.Println("gone:", errors.Is(err, api.ErrNotFound))
	// Output:
	// hello
	// gone: true
}

// exampleT is a test for an example, which has none.
type exampleT struct {
	testing.TB
	cleanup []func()
}

func newT() *exampleT { return &exampleT{} }

func (*exampleT) Helper()                             {}
func (*exampleT) Context() context.Context            { return context.Background() }
func (*exampleT) Output() io.Writer                   { return io.Discard }
func (*exampleT) Error(args ...any)                   { fmt.Fprintln(os.Stdout, args...) }
func (*exampleT) Fatal(args ...any)                   { panic(fmt.Sprint(args...)) }
func (t *exampleT) Fatalf(format string, args ...any) { t.Fatal(fmt.Sprintf(format, args...)) }
func (t *exampleT) Cleanup(f func())                  { t.cleanup = append(t.cleanup, f) }

func (t *exampleT) end() {
	for _, f := range slices.Backward(t.cleanup) {
		f()
	}
}
