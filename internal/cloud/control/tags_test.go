package control

import (
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestTags checks that tags are counted, can be found by name, and are listed page by page in every
// order, with their builds.
func TestTags(t *testing.T) {
	t.Parallel()
	s := start(t)
	source := s.mustCreate(t, `{"templateID":"base"}`)
	for _, name := range []string{"job", "job:b", "job:a.1", "job:a.2"} {
		s.must(t, "POST", "/sandboxes/"+source+"/snapshots", fmt.Sprintf(`{"name":%q}`, name), 201)
	}
	if got := s.must(t, "GET", "/templates/local%2Fjob/tags/count", "", 200); got["total"] != 4.0 {
		t.Errorf("got %v, want 4 tags", got)
	}
	for tag, want := range map[string]map[string]any{
		"default": {"exists": true, "normalizedTag": "default"},
		" A.1 ":   {"exists": true, "normalizedTag": "a.1"},
		"c":       {"exists": false, "normalizedTag": "c"},
	} {
		if diff := cmp.Diff(want, s.must(t, "GET", "/templates/job/tags/exists?tag="+url.QueryEscape(tag), "", 200)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tag, diff)
		}
	}
	for query, want := range map[string][]string{
		"":                            {"a.2", "a.1", "b", "default"},
		"tagsLimit=4":                 {"a.2", "a.1", "b", "default"},
		"tagsLimit=1":                 {"a.2", "a.1", "b", "default"},
		"tagsLimit=3&sort=latest_asc": {"default", "b", "a.1", "a.2"},
		"tagsLimit=1&sort=name_asc":   {"a.1", "a.2", "b", "default"},
		"tagsLimit=2&sort=name_desc":  {"default", "b", "a.2", "a.1"},
		"tagsLimit=1&search=A.&assignmentLimit=1": {"a.2", "a.1"},
		"search=nope": nil,
	} {
		groups := s.tagGroupsOf(t, query)
		var got []string
		for _, group := range groups {
			got = append(got, group["tag"].(string))
			name := group["tag"].(string)
			assignments := s.must(t, "GET", "/templates/job/tags/"+name+"/assignments", "", 200)
			want := map[string]any{"data": group["assignments"], "nextCursor": nil}
			if diff := cmp.Diff(want, assignments); diff != "" || group["hasMore"] != false {
				t.Errorf("%s %s: more: %v, assignments (-of the group +by themselves):\n%s", query, name, group["hasMore"], diff)
			}
			one := group["assignments"].([]any)[0].(map[string]any)
			if one["buildId"] == "" || len(one["assignmentId"].(string)) != 36 || one["buildFinishedAt"] != one["buildCreatedAt"] {
				t.Errorf("%s: got %v, want the ids and times of a snapshot", name, one)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	job, err := s.templates.Get(templates.ParseReference("job"))
	must.Do(t, err)
	for later, want := range map[time.Duration]int{time.Nanosecond: 1, 0: 0, -time.Nanosecond: 0} { // newest first
		a := assignmentOf(&job, "b")
		token := cursor{a.AssignedAt.Add(later), a.AssignmentID}.encode(false)
		if got := s.must(t, "GET", "/templates/job/tags/b/assignments?cursor="+url.QueryEscape(token), "", 200)["data"].([]any); len(got) != want {
			t.Errorf("behind what is %v later: got %v, want %d", later, got, want)
		}
	}
	if got := s.must(t, "GET", "/templates/job/tags/nope/assignments", "", 200); len(got["data"].([]any)) != 0 || got["nextCursor"] != nil {
		t.Errorf("of a tag that is not there: got %v, want none", got)
	}
	for path, status := range map[string]int{
		"/templates/nope/tags/count": 404, "/templates/nope/tags/exists?tag=a": 404, "/templates/nope/tags/groups": 404, "/templates/nope/tags/a/assignments": 404,
		"/templates/other%2Fjob/tags/count": 400, "/templates/job/tags/exists": 400, "/templates/job/tags/exists?tag=a%20b": 400,
		"/templates/job/tags/groups?sort=x": 400, "/templates/job/tags/groups?tagsLimit=0": 400, "/templates/job/tags/groups?assignmentLimit=x": 400,
		"/templates/job/tags/groups?tagsCursor=x": 400, "/templates/job/tags/a/assignments?cursor=x": 400, "/templates/job/tags/a/assignments?limit=101": 400,
		"/templates/job/tags/more": 404, "/templates/job/tags/a/more": 404, "/templates/job/tags/a/assignments/more": 404,
	} {
		s.must(t, "GET", path, "", status)
	}
}

// tagGroupsOf returns the groups of tags on all pages.
func (s *service) tagGroupsOf(t *testing.T, query string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for cursor := ""; ; {
		page := s.must(t, "GET", "/templates/job/tags/groups?"+query+cursor, "", 200)
		for _, group := range page["tags"].([]any) {
			all = append(all, group.(map[string]any))
		}
		next, more := page["nextCursor"].(string)
		if !more {
			return all
		}
		cursor = "&tagsCursor=" + url.QueryEscape(next)
	}
}
