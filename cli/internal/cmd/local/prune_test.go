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
	"github.com/e2bctl/e2bctl/internal/must"
)

// keep makes a state directory with the files of sandboxes, which get 3, 2 and 1 hours
// old, and an unfinished one.
func keep(t *testing.T, ids ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	s, err := store.Open(t.Context(), dir)
	must.Do(t, err)
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
		must.Do(t, err)
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
	opts.Report = cmdutil.NewFactory(opts.IO, nil).Report
	err = pruneRun(ctx, opts)
	return out.String(), errors.String(), err
}

func TestPrune(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir()) // no local cloud runs in it
	must.Do(t, os.Chmod(os.Getenv("XDG_RUNTIME_DIR"), 0o700))
	dir := keep(t, "a", "b", "c")
	ids := func() string {
		t.Helper()
		out, _, err := prune(t.Context(), "", &pruneOptions{State: dir, Quiet: true})
		must.Do(t, err)
		return strings.Join(strings.Fields(out), " ")
	}
	out, _, err := prune(t.Context(), "", &pruneOptions{State: dir, JSON: true})
	var view keptView
	if err := errors.Join(err, json.Unmarshal([]byte(out), &view)); err != nil || len(view.Sandboxes) != 3 || view.StateDir != dir {
		t.Fatalf("got %s and error %v, want three sandboxes of %s", out, err, dir)
	}
	listed := view.Sandboxes
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
	unshown := &pruneOptions{State: dir, All: true, IO: &cmdutil.IOStreams{In: strings.NewReader("n\n"), Err: &fullAfter{}}}
	must.Is(t, pruneRun(t.Context(), unshown), errFull)
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
	must.Do(t, err)
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

// A running cloud is asked, and only its paused sandboxes can be removed.
func TestPruneRunning(t *testing.T) {
	t.Parallel()
	dir := keep(t, "paused", "resumed")
	s, err := store.Open(t.Context(), dir) // as the cloud opens it
	must.Do(t, err)
	defer s.Close()
	var killed []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodDelete:
			killed = append(killed, r.URL.Path)
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Path == "/local/space":
			fmt.Fprint(w, `{"bytes":7,"cap":9,"layers":{"count":1,"bytes":2},"cache":{"count":3,"bytes":4},"uploads":{"count":5,"bytes":6}}`)
		case r.URL.Query().Get("state") == "paused":
			fmt.Fprint(w, `[{"sandboxID":"paused","state":"paused","endAt":"2026-11-22T10:00:00Z"}]`)
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer server.Close()
	k, err := runningKeeper(t.Context(), localcloud.Record{URL: server.URL, Key: "e2b_" + strings.Repeat("0", 40), State: dir})
	must.Do(t, err)
	defer k.close()
	if len(k.kept) != 1 || k.kept[0].ID != "paused" || k.kept[0].Bytes < 1<<20 {
		t.Errorf("got %+v, want the paused one with the size of its files", k.kept)
	}
	if want := (localcloud.Space{Layers: localcloud.Taken{Count: 1, Bytes: 2}, Cache: localcloud.Taken{Count: 3, Bytes: 4}, Uploads: localcloud.Taken{Count: 5, Bytes: 6}}); k.space != want {
		t.Errorf("got the space %+v, want %+v", k.space, want)
	}
	if want := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC); !k.kept[0].Saved.Equal(want) {
		t.Errorf("got %v, want the time of the pause, %v", k.kept[0].Saved, want)
	}
	if err := k.remove(t.Context(), "resumed"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that runs: got error %v, want it to be left alone", err)
	}
	if err := errors.Join(k.remove(t.Context(), "paused"), k.emptyCache(t.Context())); err != nil || strings.Join(killed, " ") != "/sandboxes/paused /local/space/cache" {
		t.Errorf("got error %v and %q, want the paused one to be killed and the cache to be emptied", err, killed)
	}
}

// Without a running cloud, the cache is removed with the layers that only it needs.
func TestPruneCache(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir()) // no local cloud runs in it
	must.Do(t, os.Chmod(os.Getenv("XDG_RUNTIME_DIR"), 0o700))
	dir := keep(t, "a")
	s, err := store.Open(t.Context(), dir)
	must.Do(t, err)
	put := func(table store.Table, id, value string, size int) {
		t.Helper()
		files := ""
		if size > 0 {
			if files, err = s.NewDir(); err == nil {
				err = os.WriteFile(filepath.Join(files, "files"), make([]byte, size), 0o600)
			}
		}
		if err == nil {
			_, err = s.Put(table, id, []byte(value), files)
		}
		must.Do(t, err)
	}
	put(store.Layers, "layertemplate", "{}", 1<<20)
	put(store.Layers, "layersandbox", "{}", 1<<20)
	put(store.Layers, "layercached", "{}", 2<<20)
	put(store.Templates, "t", `{"Layers":["layertemplate"]}`, 0)
	put(store.Sandboxes, "b", `{"Layers":["layersandbox"]}`, 1)
	put(store.Cache, "step", `{"Layers":["layertemplate","layercached"]}`, 0)
	put(store.Uploads, "archive", "{}", 3<<20)
	must.Do(t, s.Close())
	sizes := func() (view keptView) {
		t.Helper()
		out, _, err := prune(t.Context(), "", &pruneOptions{State: dir, JSON: true})
		if err = errors.Join(err, json.Unmarshal([]byte(out), &view)); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		return view
	}
	got := sizes()
	for _, taken := range []*localcloud.Taken{&got.Layers, &got.Cache, &got.Uploads} {
		taken.Bytes >>= 20 // without the bytes of the directories
	}
	if want := (localcloud.Space{Layers: localcloud.Taken{Count: 2, Bytes: 2}, Cache: localcloud.Taken{Count: 1, Bytes: 2}, Uploads: localcloud.Taken{Count: 1, Bytes: 3}}); got.Space != want {
		t.Errorf("got %+v, want %+v, in MiB", got.Space, want)
	}
	if out, _, err := prune(t.Context(), "", &pruneOptions{State: dir}); err != nil || !strings.Contains(out, "cached steps of builds") || !strings.Contains(out, "archives of builds") {
		t.Errorf("got %q and error %v, want a table with the cache", out, err)
	}
	out, text, err := prune(t.Context(), "", &pruneOptions{State: dir, Cache: true})
	if err != nil || out != "" || !strings.Contains(text, "removed 5 MiB of cached steps and archives") {
		t.Errorf("got %q, %q and error %v, want the cache to be removed", out, text, err)
	}
	got = sizes()
	if got.Layers.Count != 2 || got.Cache != (localcloud.Taken{}) || got.Uploads != (localcloud.Taken{}) || len(got.Sandboxes) != 2 {
		t.Errorf("got %+v, want only the cache to be gone", got)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "files", "layercached.*")); err != nil || len(left) > 0 {
		t.Errorf("got %v and error %v, want the layer of the step to be gone", left, err)
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

// TestPruneOfACloudThatFails checks the error of each question to a running cloud.
func TestPruneOfACloudThatFails(t *testing.T) {
	t.Parallel()
	dir := keep(t, "paused")
	for name, fails := range map[string]string{"the space": "/local/space", "the list": "/v2/sandboxes", "nothing": ""} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case fails:
				w.WriteHeader(http.StatusForbidden)
			case "/local/space":
				fmt.Fprint(w, `{}`)
			default:
				fmt.Fprint(w, `[{"sandboxID":"paused","state":"paused"},{"sandboxID":"new","state":"paused"}]`)
			}
		}))
		k, err := runningKeeper(t.Context(), localcloud.Record{URL: server.URL, Key: "e2b_" + strings.Repeat("0", 40), State: dir})
		if (err != nil) != (fails != "") {
			t.Errorf("%s fails: got error %v", name, err)
		}
		if err == nil {
			if len(k.kept) != 2 || k.kept[0].Bytes < 1<<20 || k.kept[1].Bytes != 0 {
				t.Errorf("got %+v, want the one with files and the one without", k.kept)
			}
			must.Do(t, k.close())
		}
		server.Close()
	}
	if _, err := runningKeeper(t.Context(), localcloud.Record{URL: "no address", State: dir}); err == nil {
		t.Error("no address: got no error")
	}
}

// TestPruneCacheAndMore checks that the cache is removed before the sandboxes, and instead of their list.
func TestPruneCacheAndMore(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir()) // no local cloud runs in it
	must.Do(t, os.Chmod(os.Getenv("XDG_RUNTIME_DIR"), 0o700))
	dir := keep(t, "a", "b", "c")
	for _, tt := range []struct {
		opts pruneOptions
		out  string
	}{{pruneOptions{}, ""}, {pruneOptions{IDs: []string{"b"}}, "b\n"}, {pruneOptions{All: true, Yes: true}, "a\nc\n"}} {
		tt.opts.State, tt.opts.Cache = dir, true
		out, text, err := prune(t.Context(), "", &tt.opts)
		if err != nil || out != tt.out || !strings.HasPrefix(text, "removed ") {
			t.Errorf("%+v: got %q, %q and error %v, want %q", tt.opts, out, text, err, tt.out)
		}
	}
	if _, _, err := prune(t.Context(), "", &pruneOptions{State: filepath.Join(dir, "files", "none", "x")}); err != nil {
		t.Errorf("a directory that is not there: got error %v", err)
	}
}
