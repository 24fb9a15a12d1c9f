//go:build linux

package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// keep makes a state directory with the files of sandboxes, which get 3, 2 and 1 hours
// old, and an unfinished one.
func keep(t *testing.T, ids ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	s, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n, id := range ids {
		files, err := s.NewDir()
		if err == nil {
			err = os.WriteFile(filepath.Join(files, "large"), make([]byte, 1<<20), 0o600)
		}
		if err == nil {
			files, err = s.Put(store.Sandboxes, id, nil, files)
		}
		if err == nil {
			then := time.Now().Add(time.Duration(n-len(ids)) * time.Hour)
			err = os.Chtimes(files, then, then)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.NewDir(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// prune runs the command, and returns its output.
func prune(ctx context.Context, input string, opts *pruneOptions) (stdout, stderr string, err error) {
	var out, errors strings.Builder
	opts.IO = &cmdutil.IOStreams{In: strings.NewReader(input), Out: &out, Err: &errors}
	err = pruneRun(ctx, opts)
	return out.String(), errors.String(), err
}

func TestPrune(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir()) // in which no local cloud runs
	if err := os.Chmod(os.Getenv("XDG_RUNTIME_DIR"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := keep(t, "a", "b", "c")
	ids := func() string {
		t.Helper()
		out, _, err := prune(t.Context(), "", &pruneOptions{State: dir, Quiet: true})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(out), " ")
	}
	out, _, err := prune(t.Context(), "", &pruneOptions{State: dir, JSON: true})
	var listed []localcloud.Kept
	if err := errors.Join(err, json.Unmarshal([]byte(out), &listed)); err != nil || len(listed) != 3 {
		t.Fatalf("got %s and error %v, want three sandboxes", out, err)
	}
	if got := listed[0]; got.ID != "a" || got.Bytes < 1<<20 {
		t.Errorf("got %+v, want a with 1 MiB", got)
	}
	if age := time.Since(listed[0].Saved).Round(time.Minute); age != 3*time.Hour {
		t.Errorf("got an age of %v, want 3h", age)
	}
	out, _, err = prune(t.Context(), "", &pruneOptions{State: dir})
	if lines := strings.Split(out, "\n"); err != nil || !strings.HasPrefix(lines[0], "ID   PAUSED") || !strings.HasSuffix(lines[1], "1 MiB") {
		t.Errorf("got %q and error %v, want a table", out, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "new", "*")); len(left) != 0 {
		t.Errorf("got %q, want what was left half done to be removed", left)
	}

	if _, text, err := prune(t.Context(), "n\n", &pruneOptions{State: dir, All: true}); err == nil || !strings.Contains(text, "Remove these 3") {
		t.Errorf("declined: got error %v and %q, want a question", err, text)
	}
	if got := ids(); got != "a b c" {
		t.Errorf("declined: got %s, want all to stay", got)
	}
	hours := cmdutil.Duration(150 * time.Minute)
	if out, _, err := prune(t.Context(), "", &pruneOptions{State: dir, All: true, Yes: true, OlderThan: hours}); err != nil || out != "a\n" {
		t.Errorf("older: got %q and error %v, want a", out, err)
	}
	out, text, err := prune(t.Context(), "", &pruneOptions{State: dir, IDs: []string{"b", "b", "a"}})
	if partial, ok := errors.AsType[*cmdutil.PartialError](err); !ok || partial.Failed != 1 || partial.Total != 2 {
		t.Errorf("one of two: got error %v", err)
	}
	if out != "b\n" || !strings.Contains(text, "a: no paused sandbox a is kept") {
		t.Errorf("one of two: got %q and %q, want b to be removed and a not to be there", out, text)
	}
	if _, _, err := prune(t.Context(), "", &pruneOptions{State: dir, IDs: []string{"a"}}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is not there: got %v", err)
	}

	s, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := ids(); got != "c" {
		t.Errorf("in use: got %s, want c to be listed", got)
	}
	_, _, err = prune(t.Context(), "", &pruneOptions{State: dir, IDs: []string{"c"}})
	if _, ok := errors.AsType[*localcloud.ConflictError](err); !ok {
		t.Errorf("in use: got %v, want a conflict", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if out, _, err := prune(t.Context(), "y\n", &pruneOptions{State: dir, All: true}); err != nil || out != "c\n" {
		t.Errorf("the rest: got %q and error %v, want c", out, err)
	}
	if _, text, err := prune(t.Context(), "", &pruneOptions{State: dir, All: true}); err != nil || !strings.Contains(text, "No paused sandboxes in ") {
		t.Errorf("nothing: got %q and error %v", text, err)
	}
}

// Where a cloud runs it is asked, and only what is paused there can be removed.
func TestPruneRunning(t *testing.T) {
	t.Parallel()
	dir := keep(t, "paused", "resumed")
	s, err := store.Open(t.Context(), dir) // as the cloud does
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var killed []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodDelete:
			killed = append(killed, r.URL.Path)
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Query().Get("state") == "paused":
			fmt.Fprint(w, `[{"sandboxID":"paused","state":"paused","endAt":"2026-11-22T10:00:00Z"}]`)
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer server.Close()
	k, err := runningKeeper(t.Context(), localcloud.Record{URL: server.URL, Key: "e2b_" + strings.Repeat("0", 40), State: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	if len(k.kept) != 1 || k.kept[0].ID != "paused" || k.kept[0].Bytes < 1<<20 {
		t.Errorf("got %+v, want the paused one with the size of its files", k.kept)
	}
	if want := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC); !k.kept[0].Saved.Equal(want) {
		t.Errorf("got %v, want the time of the pause, %v", k.kept[0].Saved, want)
	}
	if err := k.remove(t.Context(), "resumed"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that runs: got error %v, want it to be left alone", err)
	}
	if err := k.remove(t.Context(), "paused"); err != nil || strings.Join(killed, " ") != "/sandboxes/paused" {
		t.Errorf("got error %v and %q, want the paused one to be killed", err, killed)
	}
}

func TestSizeText(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{0: "0 KiB", 1: "1 KiB", 1 << 20: "1 MiB", 5000 << 20: "5000 MiB", 10 << 30: "10 GiB"} {
		if got := localcloud.Size(bytes); got != want {
			t.Errorf("%d: got %s, want %s", bytes, got, want)
		}
	}
}
