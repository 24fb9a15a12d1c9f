//go:build unix

package localcloud

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// put stores a record. If file is not "", the record has a directory with a file of that content.
func put(t *testing.T, s *store.Store, table store.Table, id, value, file string) {
	t.Helper()
	files := ""
	if file != "" {
		var err error
		files, err = s.NewDir()
		must.Do(t, err)
		must.Do(t, os.WriteFile(filepath.Join(files, "file"), []byte(file), 0o600))
	}
	must.Do(t, second(s.Put(table, id, []byte(value), files)))
}

// filled returns a state directory with a record of each of these tables, called after its table, which has a file.
func filled(t *testing.T, tables ...store.Table) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	s, err := store.Open(t.Context(), dir)
	must.Do(t, err)
	for _, table := range tables {
		put(t, s, table, string(table), "{}", "text")
	}
	must.Do(t, closeState(s, nil))
	return dir
}

// TestContentOfAStateDirectory checks all that a directory keeps, before and after a sandbox is removed from it.
func TestContentOfAStateDirectory(t *testing.T) {
	t.Parallel()
	dir := filled(t, store.Sandboxes, store.Volumes, store.Layers, store.Uploads)
	id := string(store.Sandboxes)
	got, err := ReadState(t.Context(), dir)
	must.Do(t, err)
	surveyed, err := Survey(t.Context(), dir)
	must.Do(t, err)
	files, err := store.Survey(t.Context(), dir, store.Sandboxes)
	must.Do(t, err)
	kept := []Kept{{id, files[0].Saved, files[0].Bytes}}
	for name, state := range map[string]State{"ReadState": got, "Survey": surveyed} {
		if diff := cmp.Diff(kept, state.Kept); diff != "" || state.Kept[0].Saved.Location() != time.UTC {
			t.Errorf("%s: the sandboxes, with times in UTC (-want +got):\n%s", name, diff)
		}
		if state.Volumes.Count != 1 || state.Volumes.Bytes <= 0 || state.Space.Uploads.Count != 1 {
			t.Errorf("%s: got %+v and %+v, want a volume and an upload", name, state.Volumes, state.Space)
		}
	}
	// No template needs the layer, so only what the cache takes tells of it once the directory is open.
	if got.Space.Layers.Count != 0 || got.Space.Cache.Bytes <= 0 || surveyed.Space.Layers.Count != 1 || surveyed.Space.Cache.Bytes != 0 {
		t.Errorf("got %+v and, without opening, %+v, want the bytes of the layer in the cache only after opening", got.Space, surveyed.Space)
	}
	must.Do(t, RemoveKept(t.Context(), dir, id))
	left, err := ReadState(t.Context(), dir)
	must.Do(t, err)
	if diff := cmp.Diff(got, left, cmpopts.IgnoreFields(State{}, "Kept")); diff != "" || len(left.Kept) > 0 {
		t.Errorf("got the sandboxes %+v after the removal, want none; the rest (-want +got):\n%s", left.Kept, diff)
	}
}

// TestDamagedRecords checks that a record that cannot be read is noted, and that no layer that it may need is removed.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	dir := filled(t, store.Templates, store.Layers)
	storetest.Damage(t, dir, store.Templates, string(store.Templates))
	state, err := ReadState(t.Context(), dir)
	must.Do(t, err)
	if notes := strings.Join(state.Notes, "; "); !strings.Contains(notes, "a record cannot be read") {
		t.Errorf("got the notes %q, want one about the record", notes)
	}
	if state.Space.Layers.Count != 1 || state.Space.Cache.Bytes != 0 {
		t.Errorf("got %+v, want no bytes that the cache alone needs", state.Space)
	}
	if err := EmptyCache(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "reading "+string(store.Templates)) {
		t.Errorf("got error %v, want that the templates cannot be read", err)
	}
	left, err := Survey(t.Context(), dir)
	if err != nil || left.Space.Layers.Count != 1 {
		t.Errorf("got %+v and error %v, want the layer to stay", left.Space, err)
	}
	steps := filled(t, store.Cache)
	storetest.Damage(t, steps, store.Cache, string(store.Cache))
	if err := EmptyCache(t.Context(), steps); err == nil || !strings.Contains(err.Error(), "reading "+string(store.Cache)) {
		t.Errorf("got error %v, want that the steps cannot be read", err)
	}
}

// TestStateThatCannotBeRead checks that whoever asks about a directory gets the error of each part that is not read to its end.
func TestStateThatCannotBeRead(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, table := range []store.Table{store.Sandboxes, store.Layers, store.Uploads, store.Volumes} {
		dir := filled(t, table)
		must.Is(t, second(Survey(ctx, dir)), context.Canceled)
		must.Is(t, second(ReadState(ctx, dir)), context.Canceled)
		s, err := store.Open(t.Context(), dir)
		must.Do(t, err)
		_, err = spaceOf(ctx, s)
		if want := table == store.Layers || table == store.Uploads; errors.Is(err, context.Canceled) != want {
			t.Errorf("the space of %s: got error %v, want one: %v", table, err, want)
		}
		must.Do(t, closeState(s, nil))
		if table == store.Sandboxes {
			must.Is(t, RemoveKept(ctx, dir, string(table)), context.Canceled)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	state, err := ReadState(t.Context(), file)
	if diff := cmp.Diff(State{Dir: file}, state); diff != "" || !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file: got error %v, the state (-want +got):\n%s", err, diff)
	}
}
