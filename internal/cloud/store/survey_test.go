package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestSurvey(t *testing.T) {
	t.Parallel()
	began := time.Now().Truncate(time.Second)
	dir := t.TempDir()
	if kept, err := Survey(t.Context(), dir, Sandboxes); err != nil || len(kept) != 0 {
		t.Errorf("of no store: got %v and error %v, want nothing", kept, err)
	}
	s := open(t, dir)
	locked := fill(t, s, "text")
	must.Do(t, errors.Join(
		os.WriteFile(filepath.Join(locked, "large"), make([]byte, 1<<20), 0o600),
		os.Truncate(filepath.Join(locked, "text"), 1<<40), // no space for a hole
		os.Mkdir(filepath.Join(locked, "locked"), 0),
	))
	second := put(t, s, Sandboxes, "a-b", "", locked) // its directory comes before that of a
	first := put(t, s, Sandboxes, "a", "", fill(t, s, "text"))
	put(t, s, Sandboxes, "c", "", "")
	put(t, s, Layers, "a", "", fill(t, s, "text"))
	if got, err := Survey(t.Context(), dir, Layers); err != nil || len(got) != 1 || got[0].ID != "a" {
		t.Errorf("layers: got %v and error %v, want only a", got, err)
	}
	volume := put(t, s, Volumes, "a", "", fill(t, s, "text"))
	kept, err := Survey(t.Context(), dir, Sandboxes)
	must.Do(t, err)
	want := []Kept{{ID: "a", Dir: first}, {ID: "a-b", Dir: second}}
	if diff := cmp.Diff(want, kept, cmpopts.IgnoreFields(Kept{}, "Saved", "Bytes")); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	ended := time.Now()
	for n, from := range []int64{0, 1 << 20} {
		if got := kept[n].Bytes; got < from || got > from+1<<16 {
			t.Errorf("%s: got %d bytes, want a little more than %d", kept[n].ID, got, from)
		}
		if saved := kept[n].Saved; saved.Before(began) || saved.After(ended) {
			t.Errorf("%s: got the time %v, want it from %v until now", kept[n].ID, saved, began)
		}
	}
	if got, err := Survey(t.Context(), dir, Volumes); err != nil || len(got) != 1 || got[0].ID != "a" {
		t.Errorf("volumes: got %v and error %v, want only a", got, err)
	}
	must.Do(t, s.Close())
	wantRecords(t, open(t, dir), Volumes, Record{ID: "a", Value: []byte{}, Dir: volume})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Survey(ctx, dir, Sandboxes); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	other := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(other, published), nil, 0o600))
	if kept, err := Survey(t.Context(), other, Sandboxes); err == nil {
		t.Errorf("of a directory that cannot be read: got %v and no error", kept)
	}
}
