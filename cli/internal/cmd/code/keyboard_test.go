package code

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// typedInto types keys in pieces of n bytes, and returns the keys that the line editor receives.
func typedInto(t *testing.T, k *keyboard, keys string, n int) string {
	t.Helper()
	for len(keys) > 0 {
		n = min(n, len(keys))
		k.take([]byte(keys[:n]), nil)
		keys = keys[n:]
	}
	k.take(nil, io.EOF)
	var got strings.Builder
	for {
		key, err := k.read(t.Context())
		if errors.Is(err, io.EOF) {
			return got.String()
		}
		must.Do(t, err)
		got.WriteString(key)
	}
}

func TestKeyboard(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{
		"größe\r":                  "größe\r",
		"a\nb":                     "a\rb",
		"a\x03":                    "a\a\r",
		"\x1b\x03b":                "\a\rb", // after the escape key
		"\x1b[1\x03":               "\a\r",
		"\x1b[1;5C\x1bf\x1bOA":     "\x1b[1;3C\x1b[1;3C\x1b[A",
		"\x1b[15~\x1b[<0;1;2Mx":    "x", // keys and the mouse, which mean nothing
		"\x1b[200~a\r\nb\x1b[201~": "\x1b[200~a\rb\x1b[201~",
		"\x1b[200~\t\x03\x1b[A\x1b]0;t\a\x1b[201~\t": "\x1b[200~⇥0;t\x1b[201~\t",
		"\x1b[" + strings.Repeat("1", 99) + "mx":     strings.Repeat("1", 99-maxKey) + "mx",
	} {
		for _, n := range []int{1, 2, 100} {
			if got := typedInto(t, &keyboard{news: make(chan struct{}, 1)}, keys, n); got != want {
				t.Errorf("%q in pieces of %d: the editor gets %q, want %q", keys, n, got, want)
			}
		}
	}
}

// TestKeyboardInterrupts checks that Ctrl-C interrupts the running code, also if it was typed
// before that began, and that keys typed before Ctrl-C are dropped.
func TestKeyboardInterrupts(t *testing.T) {
	t.Parallel()
	k, interrupts := &keyboard{news: make(chan struct{}, 1)}, 0
	k.take([]byte("ahead\x03rest"), nil)
	k.during(func() { interrupts++ })
	if interrupts != 1 {
		t.Errorf("a Ctrl-C that was typed ahead interrupts %d times, want once", interrupts)
	}
	k.take([]byte("lost\x03ke"), nil)
	k.take([]byte("pt"), nil)
	k.take(make([]byte, maxAhead), nil) // too much
	k.during(nil)
	if got := typedInto(t, k, "", 1); interrupts != 2 || got != "kept" {
		t.Errorf("%d interrupts and %q, want 2 and what was typed after them", interrupts, got)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	_, err := (&keyboard{news: make(chan struct{}, 1)}).read(ctx)
	must.Is(t, err, errInterrupted)
}

func TestMarks(t *testing.T) {
	t.Parallel()
	const text = "if x:\n\ty\n"
	if line := marked(text); line != "if x:⏎⇥y⏎" || unmarked(line) != text {
		t.Errorf("%q is the line %q, and back %q", text, line, unmarked(line))
	}
}
