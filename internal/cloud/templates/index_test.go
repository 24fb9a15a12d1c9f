package templates_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// pages returns all entries of a list, page by page, and the number of entries that the list
// checked.
func pages[T any](list func(*ordered.Position, int, func(*T) bool) []T, at func(*T) ordered.Position) (all []T, looked int) {
	const size = 10
	for after := (*ordered.Position)(nil); ; after = new(at(&all[len(all)-1])) {
		page := list(after, size, func(*T) bool { looked++; return true })
		all = append(all, page...)
		if len(page) < size {
			return all, looked
		}
	}
}

// TestListsCostAPage checks that lists of templates and of snapshots check each entry once, for any
// number of entries. They contain the current entries after tags were moved, after templates were
// deleted, and after a restart.
func TestListsCostAPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir)
	check := func(what string) {
		t.Helper()
		listed, looked := pages(s.Page, (*templates.Template).Position)
		if diff := cmp.Diff(s.All(), listed); diff != "" || looked != len(listed) {
			t.Errorf("%s: %d templates were looked at for %d (-all +pages):\n%s", what, looked, len(listed), diff)
		}
		var want []string
		for _, one := range listed {
			for _, tag := range one.TagNames() {
				if build, _ := one.Tagged(tag); build.Sandbox != "" {
					want = append(want, fmt.Sprint(one.FullName(), tag, build.ID, one.Tags[tag].CreatedAt))
				}
			}
		}
		snapshots, looked := pages(s.Snapshots, (*templates.Snapshot).Position)
		if !slices.IsSortedFunc(snapshots, func(a, b templates.Snapshot) int { return a.Position().Compare(b.Position()) }) || looked != len(snapshots) {
			t.Errorf("%s: %d were looked at for %d snapshots, which are to be in order", what, looked, len(snapshots))
		}
		var got []string
		for _, one := range snapshots {
			got = append(got, fmt.Sprint(one.FullName(), one.Tag, one.Build.ID, one.TaggedAt))
			if ref := templates.ParseReference(one.ID()); !one.NamedBy(&ref) {
				t.Errorf("%s: %s does not name its snapshot", what, one.ID())
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: snapshots (-want +got):\n%s", what, diff)
		}
	}
	for i := range 35 {
		s.snapshot(t, "")
		s.snapshot(t, fmt.Sprintf("job:v%d", i))
		if _, _, err := s.Request(templates.ParseReference(fmt.Sprintf("built%d", i)), nil, templates.Build{}); err != nil {
			t.Fatal(err)
		}
	}
	check("made")
	for i := range 30 {
		s.snapshot(t, "job:moves")
		if _, _, err := s.Assign(templates.ParseReference(fmt.Sprintf("job:v%d", i)), []string{"moves", "other"}); err != nil {
			t.Fatal(err)
		}
	}
	must.Do(t, s.Unassign(templates.ParseReference("job"), []string{"other", "v3"}))
	check("tags have moved")
	for i, one := range s.All() {
		if i%3 == 0 && !one.BuiltIn && one.Name != "job" {
			must.Do(t, s.Delete(templates.ParseReference(one.ID), func(string) bool { return false }))
		}
	}
	check("templates are deleted")
	before, _ := pages(s.Snapshots, (*templates.Snapshot).Position)
	s = s.restart(t, dir)
	check("restarted")
	if after, _ := pages(s.Snapshots, (*templates.Snapshot).Position); len(after) != len(before) || after[0].ID() != before[0].ID() {
		t.Errorf("after a restart there are %d snapshots, want %d", len(after), len(before))
	}
	job, err := s.Get(templates.ParseReference("local/job"))
	must.Do(t, err)
	var builds []templates.Build
	for after := (*ordered.Position)(nil); ; after = new(builds[len(builds)-1].Position()) {
		page := job.Newest(after, 7)
		builds = append(builds, page...)
		if len(page) < 7 {
			break
		}
	}
	slices.Reverse(builds)
	if diff := cmp.Diff(job.Builds, builds); diff != "" {
		t.Errorf("builds in pages (-all +pages):\n%s", diff)
	}
}
