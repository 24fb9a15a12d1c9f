//go:build linux

package envd

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// poll creates a watcher of the home and returns a function that fetches its events.
func (d *daemon) poll(t *testing.T) func() ([]string, error) {
	t.Helper()
	client := d.files()
	created, err := client.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Recursive: true}))
	must.Do(t, err)
	return func() ([]string, error) {
		res, err := client.GetWatcherEvents(t.Context(), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: created.Msg.GetWatcherId()}))
		if err != nil {
			return nil, err
		}
		var events []string
		for _, e := range res.Msg.GetEvents() {
			events = append(events, strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_")+" "+e.GetName())
		}
		return events, nil
	}
}

// TestPolledAtOnce fetches events right after each change: the answer includes that
// change, in the watched directory and in one just made in it.
func TestPolledAtOnce(t *testing.T) {
	t.Parallel()
	d := serve(t)
	poll := d.poll(t)
	ask := func() []string {
		t.Helper()
		events, err := poll()
		must.Do(t, err)
		return events
	}
	missing := 0
	for i := range 300 {
		dir := fmt.Sprint(i)
		must.Do(t, os.MkdirAll(d.home+"/"+dir+"/below", 0o755))
		put(t, d.home+"/"+dir+"/below/file", "text")
		first := ask()
		put(t, d.home+"/"+dir+"/below/file", "more")
		second := ask()
		must.Do(t, os.RemoveAll(d.home+"/"+dir))
		third := ask()
		if !slices.Contains(first, "CREATE "+dir+"/below/file") || !slices.Contains(second, "WRITE "+dir+"/below/file") || !slices.Contains(third, "REMOVE "+dir) {
			missing++
			t.Logf("%d: after its making %q, a write %q, its removal %q", i, first, second, third)
		}
	}
	if missing > 0 {
		t.Errorf("%d of 300 times events were missing", missing)
	}
}

// TestPolledMoved moves a watched directory into one that was just made: it is still
// watched there.
func TestPolledMoved(t *testing.T) {
	t.Parallel()
	d := serve(t)
	poll := d.poll(t)
	for i := range 100 {
		from, to := fmt.Sprint("from", i), fmt.Sprint("to", i)
		must.Do(t, os.Mkdir(d.home+"/"+from, 0o755))
		if _, err := poll(); err != nil {
			t.Fatal(err)
		}
		must.Do(t, os.Mkdir(d.home+"/"+to, 0o755))
		must.Do(t, os.Rename(d.home+"/"+from, d.home+"/"+to+"/sub"))
		if _, err := poll(); err != nil {
			t.Fatal(err)
		}
		put(t, d.home+"/"+to+"/sub/file", "")
		if events, err := poll(); err != nil || !slices.Contains(events, "CREATE "+to+"/sub/file") {
			t.Fatalf("%d: %q, %v, want the creation of the file", i, events, err)
		}
	}
}

// TestPolledTooMuch: if more happened than can be kept, a later call reports that, no
// matter which goroutine noticed it.
func TestPolledTooMuch(t *testing.T) {
	t.Parallel()
	d := serve(t)
	poll := d.poll(t)
	d.server.watchers.kept.Add(maxKept) // until the end of the test
	defer d.server.watchers.kept.Add(-maxKept)
	put(t, d.home+"/file", "")
	patience.Until(t, "the error", func() bool {
		_, err := poll()
		if err != nil && connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Fatal(err)
		}
		return err != nil
	})
}
