package control

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

// tagAnswer describes a tag.
type tagAnswer struct {
	Tag       string    `json:"tag"`
	BuildID   string    `json:"buildID"`
	CreatedAt time.Time `json:"createdAt"`
}

func (s *Service) listTags(w http.ResponseWriter, r *http.Request) error {
	t, err := s.tagged(r)
	if err != nil {
		return err
	}
	answer := []tagAnswer{}
	for _, name := range t.TagNames() {
		tag := t.Tags[name]
		answer = append(answer, tagAnswer{name, tag.Build, tag.CreatedAt})
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// tagged returns the template in a request about tags.
func (s *Service) tagged(r *http.Request) (templates.Template, error) {
	ref := templates.ParseReference(r.PathValue("id"))
	if err := ref.CheckTeam(); err != nil {
		return templates.Template{}, err
	}
	return s.templates.Get(ref)
}

func (s *Service) countTags(w http.ResponseWriter, r *http.Request) error {
	t, err := s.tagged(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		Total int `json:"total"`
	}{len(t.Tags)})
	return nil
}

func (s *Service) tagExists(w http.ResponseWriter, r *http.Request) error {
	t, err := s.tagged(r)
	if err != nil {
		return err
	}
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	name, err := templates.ParseTag(query.Get("tag"))
	if err != nil {
		return err
	}
	_, exists := t.Tags[name]
	writeJSON(w, http.StatusOK, struct {
		Exists        bool   `json:"exists"`
		NormalizedTag string `json:"normalizedTag"`
	}{exists, name})
	return nil
}

// assignment is the assignment of a tag to a build, with its time. The service keeps all
// assignments. This cloud keeps the newest assignment of each tag.
type assignment struct {
	AssignmentID    string    `json:"assignmentId"`
	BuildID         string    `json:"buildId"`
	AssignedAt      time.Time `json:"assignedAt"`
	BuildCreatedAt  time.Time `json:"buildCreatedAt"`
	BuildFinishedAt time.Time `json:"buildFinishedAt"`
}

func assignmentOf(t *templates.Template, name string) assignment {
	tag := t.Tags[name]
	build, _ := t.Tagged(name)
	return assignment{assignmentID(t.ID, name, tag), tag.Build, tag.CreatedAt, build.CreatedAt, build.FinishedAt}
}

// assignmentID returns a UUID that identifies an assignment. It is derived from the assignment,
// so that it stays the same.
func assignmentID(template, name string, tag templates.Tag) string {
	sum := sha256.Sum256([]byte(template + ":" + name + ":" + tag.Build + ":" + tag.CreatedAt.Format(time.RFC3339Nano)))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// tagAssignments answers with the assignments of a tag. The list is empty for an unknown tag.
func (s *Service) tagAssignments(w http.ResponseWriter, r *http.Request) error {
	t, err := s.tagged(r)
	if err != nil {
		return err
	}
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	name, err := templates.ParseTag(r.PathValue("tag"))
	if err != nil {
		return err
	}
	if _, err := pageLimit("limit", query.Get("limit"), maxPage); err != nil {
		return err
	}
	all := []assignment{}
	if _, ok := t.Tags[name]; ok {
		all = append(all, assignmentOf(&t, name))
	}
	if token := query.Get("cursor"); token != "" {
		after, ascending, ok := decodeCursor(token)
		if !ok || ascending {
			return errBadToken
		}
		all = slices.DeleteFunc(all, func(a assignment) bool { return comparePaged(after, cursor{a.AssignedAt, a.AssignmentID}) >= 0 })
	}
	writeJSON(w, http.StatusOK, struct {
		Data       []assignment `json:"data"`
		NextCursor *string      `json:"nextCursor"`
	}{all, nil})
	return nil
}

// tagOrders maps the names of orders in requests to orders for lists of tags.
var tagOrders = map[string]struct {
	compare   func(a, b cursor) int
	ascending bool
}{
	"latest_desc": {comparePaged, false},
	"latest_asc":  {func(a, b cursor) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.ID, b.ID)) }, true},
	"name_desc":   {func(a, b cursor) int { return strings.Compare(b.ID, a.ID) }, false},
	"name_asc":    {func(a, b cursor) int { return strings.Compare(a.ID, b.ID) }, true},
}

// tagPage selects a page of a template's tags.
type tagPage struct {
	compare   func(a, b cursor) int
	ascending bool
	search    string
	limit     int
	after     *cursor // nil: first page
}

const defaultTagPage = 25

func parseTagPage(query *query) (p tagPage, err error) {
	order, ok := tagOrders[cmp.Or(query.Get("sort"), "latest_desc")]
	if !ok {
		return p, invalid("sort must be latest_asc, latest_desc, name_asc or name_desc")
	}
	p = tagPage{compare: order.compare, ascending: order.ascending, search: strings.ToLower(strings.TrimSpace(query.Get("search")))}
	if p.limit, err = pageLimit("tagsLimit", query.Get("tagsLimit"), defaultTagPage); err != nil {
		return p, err
	}
	if _, err := pageLimit("assignmentLimit", query.Get("assignmentLimit"), maxPage); err != nil {
		return p, err
	}
	if token := query.Get("tagsCursor"); token != "" {
		after, ascending, ok := decodeCursor(token)
		if !ok || ascending != p.ascending {
			return p, errBadToken
		}
		p.after = &after
	}
	return p, nil
}

// tagNames returns the page of a template's tags, and the cursor of the next page. next is nil
// after the last page.
func (p *tagPage) tagNames(t *templates.Template) (names []string, next *string) {
	var all []cursor
	for name, tag := range t.Tags {
		at := cursor{tag.CreatedAt, name}
		if strings.Contains(name, p.search) && (p.after == nil || p.compare(*p.after, at) < 0) {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, p.compare)
	if len(all) > p.limit {
		all = all[:p.limit]
		token := all[p.limit-1].encode(p.ascending)
		next = &token
	}
	for _, at := range all {
		names = append(names, at.ID)
	}
	return names, next
}

// tagGroup is a tag, with its assignments.
type tagGroup struct {
	Tag         string       `json:"tag"`
	Assignments []assignment `json:"assignments"`
	HasMore     bool         `json:"hasMore"`
}

func (s *Service) tagGroups(w http.ResponseWriter, r *http.Request) error {
	t, err := s.tagged(r)
	if err != nil {
		return err
	}
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	page, err := parseTagPage(query)
	if err != nil {
		return err
	}
	names, next := page.tagNames(&t)
	groups := make([]tagGroup, len(names))
	for i, name := range names {
		groups[i] = tagGroup{Tag: name, Assignments: []assignment{assignmentOf(&t, name)}}
	}
	writeJSON(w, http.StatusOK, struct {
		Tags       []tagGroup `json:"tags"`
		NextCursor *string    `json:"nextCursor"`
	}{groups, next})
	return nil
}

func (s *Service) assignTags(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := decode(w, r, &q, false); err != nil {
		return err
	}
	if q.Target == "" {
		return invalid("target is missing")
	}
	build, assigned, err := s.templates.Assign(templates.ParseReference(q.Target), q.Tags)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, struct {
		Tags    []string `json:"tags"`
		BuildID string   `json:"buildID"`
	}{assigned, build.ID})
	return nil
}

func (s *Service) removeTags(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := decode(w, r, &q, false); err != nil {
		return err
	}
	if q.Name == "" {
		return invalid("name is missing")
	}
	if err := s.templates.Unassign(templates.ParseReference(q.Name), q.Tags); err != nil {
		return err
	}
	noContent(w)
	return nil
}
