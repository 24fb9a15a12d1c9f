package cli

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
		size  sizeValue
		shown string
	}{
		"1": {1, "1"}, "1024": {1024, "1KiB"}, "20GiB": {20 << 30, "20GiB"}, "3TiB": {3 << 40, "3TiB"}, "1536MiB": {1536 << 20, "1536MiB"},
		"": {}, "0": {}, "-1": {}, "-1KiB": {}, "GiB": {}, "1.5GiB": {}, "1 GiB": {}, "1GB": {}, "9007199254740992KiB": {}, "9223372036854775808": {},
	} {
		var got sizeValue
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

func TestTransfers(t *testing.T) {
	t.Parallel()
	var up uploads
	var down downloads
	for _, text := range []string{".:app", `C:\src:app`, "a b:c d"} {
		if err := up.Set(text); err != nil {
			t.Errorf("upload %q: %v", text, err)
		}
	}
	for _, text := range []string{"app/report.xml:out/", `report:C:\out`} {
		if err := down.Set(text); err != nil {
			t.Errorf("download %q: %v", text, err)
		}
	}
	if diff := cmp.Diff(uploads{{".", "app"}, {`C:\src`, "app"}, {"a b", "c d"}}, up, cmp.AllowUnexported(transfer{})); diff != "" {
		t.Errorf("uploads (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(downloads{{"app/report.xml", "out/"}, {"report", `C:\out`}}, down, cmp.AllowUnexported(transfer{})); diff != "" {
		t.Errorf("downloads (-want +got):\n%s", diff)
	}
	for _, text := range []string{"", "app", ":", "app:", ":app", "a\x00:b"} {
		if up.Set(text) == nil {
			t.Errorf("upload %q is accepted", text)
		}
		if down.Set(text) == nil {
			t.Errorf("download %q is accepted", text)
		}
	}
}

func FuzzTransfer(f *testing.F) {
	for _, seed := range []string{".:app", "a:b:c", ":", "::"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var up uploads
		if up.Set(text) == nil {
			if len(up) != 1 || up[0].source+":"+up[0].target != text || strings.Contains(up[0].target, ":") {
				t.Fatalf("upload %q gives %+v", text, up)
			}
		}
		var down downloads
		if down.Set(text) == nil {
			if len(down) != 1 || down[0].source+":"+down[0].target != text || strings.Contains(down[0].source, ":") {
				t.Fatalf("download %q gives %+v", text, down)
			}
		}
	})
}
