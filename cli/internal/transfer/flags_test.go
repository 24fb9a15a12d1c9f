package transfer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
	if diff := cmp.Diff(uploads{{".", "app"}, {`C:\src`, "app"}, {"a b", "c d"}}, up, cmp.AllowUnexported(pair{})); diff != "" {
		t.Errorf("uploads (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(downloads{{"app/report.xml", "out/"}, {"report", `C:\out`}}, down, cmp.AllowUnexported(pair{})); diff != "" {
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
	for text, want := range map[string]string{
		"": "there is no colon", "app": "there is no colon", ":app": "the source is empty", ":": "the source is empty", "app:": "the target is empty", "a\x00:b": "NUL",
	} {
		if err := up.Set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("upload %q: got %v, want %q", text, err, want)
		}
		if err := down.Set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("download %q: got %v, want %q", text, err, want)
		}
	}
}

// TestStreamIsAFile checks that the path - of a flag is a file, and that no other path changes.
func TestStreamIsAFile(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"-": "./-", "./-": "./-", "-a": "-a", "a": "a"} {
		if got := localFile(path); got.Path != want || got.Store != nil || got.isStream() {
			t.Errorf("%q: got %+v, want a file of this machine called %q", path, got, want)
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
			checkTransfer(t, text, up)
			if strings.Contains(up[0].target, ":") {
				t.Fatalf("upload %q has the target %q, want no colon in it", text, up[0].target)
			}
		}
		var down downloads
		if down.Set(text) == nil {
			checkTransfer(t, text, down)
			if strings.Contains(down[0].source, ":") {
				t.Fatalf("download %q has the source %q, want no colon in it", text, down[0].source)
			}
		}
	})
}

// checkTransfer checks that text became one transfer, with nothing lost.
func checkTransfer(t *testing.T, text string, got []pair) {
	t.Helper()
	if len(got) != 1 {
		t.Fatalf("%q became %+v, want one transfer", text, got)
	}
	if joined := got[0].source + ":" + got[0].target; joined != text {
		t.Fatalf("%q became %+v, which together are %q", text, got[0], joined)
	}
}
