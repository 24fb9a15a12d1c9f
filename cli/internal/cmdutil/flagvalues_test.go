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
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("parseDuration(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"90", "1h", "-1", "1e9s", "9223372037"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseDuration(text)
		if (err == nil) != (d > 0) {
			t.Fatalf("parseDuration(%q) = %v, %v", text, d, err)
		}
		if seconds, e := strconv.ParseInt(text, 10, 64); e == nil && err == nil && d != time.Duration(seconds)*time.Second {
			t.Fatalf("parseDuration(%q) = %v", text, d)
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
		"": {}, "0": {}, "-1": {}, "-1KiB": {}, "GiB": {}, "1.5GiB": {}, "1 GiB": {}, "1GB": {}, "9007199254740992KiB": {}, "9223372036854775808": {},
	} {
		var got Size
		if err := got.Set(in); got != want.size || (err == nil) != (want.size > 0) || got.String() != want.shown {
			t.Errorf("%q is %d (%v), %v; want %d (%v)", in, int64(got), &got, err, int64(want.size), want.shown)
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
		if key == "" || strings.Contains(key, "=") || key+"="+value != text {
			t.Fatalf("parseKeyValue(%q) = %q, %q", text, key, value)
		}
	})
}
