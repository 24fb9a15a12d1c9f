package cmdutil

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{
		"90": 90 * time.Second, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond,
		"": 0, "0": 0, "-5": 0, "-5s": 0, "5 m": 0, "soon": 0, "9223372036854775807": 0,
	} {
		got, err := parseDuration(in)
		if got != want {
			t.Errorf("parseDuration(%q) = %v, want %v", in, got, want)
		}
		if refused := err != nil; refused != (want == 0) {
			t.Errorf("parseDuration(%q) = %v, %v: refused %v, want %v", in, got, err, refused, want == 0)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"90", "1h", "-1", "1e9s", "9223372037"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseDuration(text)
		if err != nil {
			if d != 0 {
				t.Fatalf("parseDuration(%q) = %v, %v, want 0 with an error", text, d, err)
			}
			return
		}
		if d <= 0 {
			t.Fatalf("parseDuration(%q) = %v, want a positive duration", text, d)
		}
		if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
			if want := time.Duration(seconds) * time.Second; d != want {
				t.Fatalf("parseDuration(%q) = %v, want %v", text, d, want)
			}
		}
	})
}

func TestSizeValue(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]struct {
		size  Size
		shown string
	}{
		"1": {1, "1"}, "1024": {1024, "1KiB"}, "20GiB": {20 << 30, "20GiB"}, "3TiB": {3 << 40, "3TiB"}, "1536MiB": {1536 << 20, "1536MiB"},
		"512m": {512 << 20, "512MiB"}, "2g": {2 << 30, "2GiB"}, "1K": {1 << 10, "1KiB"}, "1t": {1 << 40, "1TiB"}, "m": {}, "1mm": {}, "1gb": {},
		"": {}, "0": {}, "-1": {}, "-1KiB": {}, "GiB": {}, "1.5GiB": {}, "1 GiB": {}, "1GB": {}, "9007199254740992KiB": {}, "9223372036854775808": {},
	} {
		var got Size
		err := got.Set(in)
		if refused := err != nil; refused != (want.size == 0) {
			t.Errorf("Set(%q) = %v: refused %v, want %v", in, err, refused, want.size == 0)
		}
		if got != want.size {
			t.Errorf("Set(%q) makes it %d, want %d", in, int64(got), int64(want.size))
		}
		if got.String() != want.shown {
			t.Errorf("%q is shown as %q, want %q", in, &got, want.shown)
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Count{"1": 1, "100000": 100000, "0": 0, "-1": 0, "": 0, "x": 0, "1.5": 0, "9223372036854775808": 0} {
		var got Count
		if err := got.Set(in); got != want || (err != nil) != (want == 0) {
			t.Errorf("Count.Set(%q) makes it %d (%v), want %d", in, got, err, want)
		}
	}
	for in, want := range map[string]Processors{"2": 2, "0.5": 0.5, "0": 0, "0.001": 0, "-1": 0, "": 0, "NaN": 0, "Inf": 0, "two": 0} {
		var got Processors
		if err := got.Set(in); got != want || (err != nil) != (want == 0) {
			t.Errorf("Processors.Set(%q) makes it %v (%v), want %v", in, got, err, want)
		}
	}
}

func FuzzParseKeyValue(f *testing.F) {
	for _, seed := range []string{"A=1", "A=", "=1", "A", "A=b=c", "A\x00=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, value, err := parseKeyValue(text)
		if err != nil {
			return
		}
		if key == "" || strings.Contains(key, "=") {
			t.Fatalf("parseKeyValue(%q) = %q, %q, want what stands before the first =", text, key, value)
		}
		if got := key + "=" + value; got != text {
			t.Fatalf("parseKeyValue(%q) = %q, %q, which together are %q", text, key, value, got)
		}
	})
}
