package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/must"
)

// keeping returns a keeper with two sandboxes, and with data of each other kind.
func keeping() *keeper {
	taken := func(n int) localcloud.Taken { return localcloud.Taken{Count: n, Bytes: int64(n) << 20} }
	saved := time.Now().Add(-3 * time.Hour)
	return &keeper{
		dir: "/s", kept: []localcloud.Kept{{ID: "a", Saved: saved, Bytes: 1 << 20}, {ID: "b", Saved: saved, Bytes: 2 << 20}},
		space: localcloud.Space{Layers: taken(3), Cache: taken(4), Uploads: taken(5)}, volumes: taken(6),
	}
}

// TestListOfWhatIsKept checks the list on a terminal and elsewhere, with all and with nothing.
func TestListOfWhatIsKept(t *testing.T) {
	t.Parallel()
	const table, besides = "ID PAUSED SIZE|", "|BESIDES COUNT SIZE|layers of snapshots, templates and sandboxes 3 3 MiB|cached steps of builds 4 4 MiB|archives of builds 5 5 MiB|volumes 6 6 MiB|"
	for name, tt := range map[string]struct {
		terminal, empty, quiet bool
		out, errs              string
	}{
		"a terminal":          {terminal: true, out: table + "a 3h ago 1 MiB|b 3h ago 2 MiB|" + besides, errs: "2 paused sandboxes are kept, 3 MiB, in /s|"},
		"a terminal, nothing": {terminal: true, empty: true, errs: "No paused sandboxes in /s.|"},
		"a file, nothing":     {empty: true, out: table},
		"identifiers":         {quiet: true, out: "a|b|"},
		"none":                {quiet: true, empty: true},
	} {
		k := keeping()
		if tt.empty {
			k = &keeper{dir: "/s"}
		}
		var out, errs strings.Builder
		opts := &pruneOptions{IO: cmdutil.NewIOStreams(nil, &out, &errs), Quiet: tt.quiet}
		opts.IO.OutIsTerminal = tt.terminal
		must.Do(t, k.list(opts, k.kept))
		line := func(text string) string {
			var all strings.Builder
			for one := range strings.Lines(text) {
				all.WriteString(strings.Join(strings.Fields(one), " ") + "|")
			}
			return all.String()
		}
		if diff := cmp.Diff(tt.out, line(out.String())); diff != "" || !strings.HasSuffix(line(errs.String()), tt.errs) || tt.errs == "" && errs.Len() > 0 {
			t.Errorf("%s: got the messages %q, want %q; output (-want +got):\n%s", name, errs.String(), tt.errs, diff)
		}
		for n := range 3 {
			w := &fullAfter{n: n}
			opts.IO = cmdutil.NewIOStreams(nil, w, io.Discard)
			if err := k.list(opts, k.kept); w.written > n && !errors.Is(err, errFull) {
				t.Errorf("%s, full after %d writes: got error %v, want %v", name, n, err, errFull)
			}
		}
	}
	var out strings.Builder
	k := keeping()
	must.Do(t, k.list(&pruneOptions{IO: cmdutil.NewIOStreams(nil, &out, io.Discard), JSON: true}, nil))
	var view keptView
	must.Do(t, json.Unmarshal([]byte(out.String()), &view))
	if diff := cmp.Diff(keptView{"/s", []localcloud.Kept{}, k.space, k.volumes}, view); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

// TestRemovalOfWhatIsKept checks that each sandbox is removed once, and when one that is gone is no failure.
func TestRemovalOfWhatIsKept(t *testing.T) {
	t.Parallel()
	var removed []string
	k := &keeper{remove: func(_ context.Context, id string) error {
		removed = append(removed, id)
		return map[string]error{"gone": fmt.Errorf("no: %w", fs.ErrNotExist), "killed": &api.Error{StatusCode: 404}, "broken": errFull}[id]
	}}
	for all, want := range map[bool]string{false: "broken gone killed", true: "broken"} {
		removed = nil
		var failed []string
		report := func(outcomes []cmdutil.Outcome) error {
			for _, o := range outcomes {
				if o.Err != nil {
					failed = append(failed, o.Name)
				}
			}
			return errFull
		}
		err := k.removeAll(t.Context(), &pruneOptions{All: all, Report: report}, []string{"killed", "a", "gone", "a", "broken"})
		if got := strings.Join(failed, " "); got != want || !errors.Is(err, errFull) || strings.Join(removed, " ") != "a broken gone killed" {
			t.Errorf("all: %v: removed %q, failed %q, error %v, want the failures %q", all, removed, got, err, want)
		}
	}
}

// TestRemovalOfTheCache checks what is said about the cache that was removed, in each format.
func TestRemovalOfTheCache(t *testing.T) {
	t.Parallel()
	k := keeping()
	for name, tt := range map[string]struct {
		opts      pruneOptions
		out, errs string
	}{
		"plainly":       {pruneOptions{}, "", "removed 9 MiB of cached steps and archives of builds from /s\n"},
		"quietly":       {pruneOptions{Quiet: true}, "", ""},
		"as JSON":       {pruneOptions{JSON: true}, "{\n  \"stateDir\": \"/s\",\n  \"removedBytes\": 9437184\n}\n", ""},
		"JSON, beside":  {pruneOptions{JSON: true, Quiet: true, IDs: []string{"a"}}, "", ""},
		"JSON, and all": {pruneOptions{JSON: true, All: true}, "", "removed 9 MiB of cached steps and archives of builds from /s\n"},
	} {
		emptied := 0
		k.emptyCache = func(context.Context) error { emptied++; return nil }
		var out, errs strings.Builder
		tt.opts.IO = cmdutil.NewIOStreams(nil, &out, &errs)
		must.Do(t, k.prune(t.Context(), &tt.opts))
		if out.String() != tt.out || errs.String() != tt.errs || emptied != 1 {
			t.Errorf("%s: emptied %d times, got %q and %q, want %q and %q", name, emptied, out.String(), errs.String(), tt.out, tt.errs)
		}
		k.emptyCache = func(context.Context) error { return errFull }
		if err := k.prune(t.Context(), &tt.opts); !errors.Is(err, errFull) {
			t.Errorf("%s: got error %v, want %v", name, err, errFull)
		}
	}
}
