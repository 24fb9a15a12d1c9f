package kernelconn

import (
	"errors"
	"testing"
)

func TestCheckNotWaiting(t *testing.T) {
	t.Parallel()
	inner := WithWaiting(WithWaiting(t.Context(), "sandbox", "outer"), "sandbox", "inner")
	for _, test := range []struct {
		sandbox, context string
		want             error
	}{
		{"sandbox", "inner", ErrSameContext},
		{"sandbox", "outer", ErrSameContext},
		{"sandbox", "another", nil},
		{"another", "inner", nil},
	} {
		if err := CheckNotWaiting(inner, test.sandbox, test.context); !errors.Is(err, test.want) {
			t.Errorf("%s of %s: %v, want %v", test.context, test.sandbox, err, test.want)
		}
	}
	if err := CheckNotWaiting(t.Context(), "sandbox", "inner"); err != nil {
		t.Errorf("a call that nothing waits for: %v", err)
	}
}
