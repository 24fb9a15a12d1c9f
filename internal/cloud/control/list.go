package control

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// maxPage is the largest page of a list, and the default page size.
const maxPage = 100

// listQuery is a validated query of GET /v2/sandboxes.
type listQuery struct {
	metadata     map[string]string
	running      bool // those that run
	paused       bool // all others
	ascending    bool
	startedAfter time.Time
	template     string // id
	nothing      bool   // asks for something that cannot exist
	limit        int
	after        *cursor
}

// cursor is the last element of the previous page.
type cursor struct {
	startedAt time.Time
	id        string
}

func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	q, err := s.parseListQuery(query)
	if err != nil {
		return err
	}
	total := 0
	found := s.sandboxes.List(func(sb *lifecycle.Sandbox) bool {
		if !q.matches(sb) {
			return false
		}
		if sb.Runs() {
			total++
		}
		return q.after == nil || q.compare(sb, *q.after) > 0
	})
	if q.running {
		w.Header().Set("X-Total-Running", strconv.Itoa(total))
	}
	page := q.first(found, q.limit+1)
	if len(page) > q.limit {
		page = page[:q.limit]
		w.Header().Set(protocol.HeaderNextToken, cursorOf(page[q.limit-1]).encode(q.ascending))
	}
	s.writeList(w, page)
	return nil
}

// first returns the first n sandboxes in the query's order. To sort all for each page of
// thousands would take longer.
func (q *listQuery) first(all []*lifecycle.Sandbox, n int) []*lifecycle.Sandbox {
	var first []*lifecycle.Sandbox
	for _, sb := range all {
		c := cursorOf(sb)
		if len(first) == n {
			if q.compare(first[n-1], c) < 0 {
				continue
			}
			first = first[:n-1]
		}
		i, _ := slices.BinarySearchFunc(first, c, q.compare)
		first = slices.Insert(first, i, sb)
	}
	return first
}

// listRunning is the first generation's list: newest first, without pages.
func (s *Service) listRunning(w http.ResponseWriter, r *http.Request) error {
	values, err := parseQuery(r)
	if err != nil {
		return err
	}
	metadata, err := parseMetadata(values.Get("metadata"))
	if err != nil {
		return err
	}
	q := &listQuery{metadata: metadata, running: true}
	found := s.sandboxes.List(q.matches)
	s.writeList(w, q.first(found, len(found)))
	return nil
}

func (s *Service) writeList(w http.ResponseWriter, found []*lifecycle.Sandbox) {
	answer := make([]listed, len(found))
	for i, sb := range found {
		answer[i] = s.listed(*sb)
	}
	writeJSON(w, http.StatusOK, answer)
}

func (q *listQuery) matches(sb *lifecycle.Sandbox) bool {
	if runs := sb.Runs(); q.nothing || runs && !q.running || !runs && !q.paused {
		return false
	}
	for key, want := range q.metadata {
		if got, ok := sb.Metadata[key]; !ok || got != want {
			return false
		}
	}
	return !sb.StartedAt.Before(q.startedAfter) && (q.template == "" || q.template == sb.Template.ID)
}

// compare orders by start time, newest first, then by id; ascending is the
// exact reverse.
func (q *listQuery) compare(sb *lifecycle.Sandbox, c cursor) int {
	order := comparePaged(cursorOf(sb), c)
	if q.ascending {
		return -order
	}
	return order
}

func (s *Service) parseListQuery(values *query) (q *listQuery, err error) {
	q = &listQuery{}
	if q.metadata, err = parseMetadata(values.Get("metadata")); err != nil {
		return nil, err
	}
	states := values.Get("state")
	q.running, q.paused = states == "", states == ""
	if states != "" {
		for state := range strings.SplitSeq(states, ",") {
			switch state {
			case stateRunning:
				q.running = true
			case statePaused:
				q.paused = true
			default:
				return nil, invalid("state must be running or paused")
			}
		}
	}
	switch values.Get("order") {
	case "", "desc":
	case "asc":
		q.ascending = true
	default:
		return nil, invalid("order must be asc or desc")
	}
	if after := values.Get("startedAfter"); after != "" {
		t, err := time.Parse(time.RFC3339, after)
		if err != nil {
			return nil, invalid("startedAfter must be an RFC 3339 time")
		}
		q.startedAfter = t.Truncate(time.Microsecond)
	}
	if name := values.Get("template"); name != "" {
		if strings.Contains(name, ":") {
			return nil, invalid("template must not have a tag here")
		}
		t, err := s.templates.Get(templates.ParseReference(name))
		q.template, q.nothing = t.ID, err != nil
	}
	if q.limit, err = pageLimit("limit", values.Get("limit"), maxPage); err != nil {
		return nil, err
	}
	if token := values.Get("nextToken"); token != "" {
		c, ascending, ok := decodeCursor(token)
		if !ok || ascending != q.ascending {
			return nil, errBadToken
		}
		q.after = &c
	}
	return q, nil
}

const (
	cursorSeparator = "__"
	cursorAscending = "__asc"
)

func cursorOf(sb *lifecycle.Sandbox) cursor { return cursor{sb.StartedAt, sb.ID} }

func (c cursor) encode(ascending bool) string {
	text := c.startedAt.Format(time.RFC3339Nano) + cursorSeparator + c.id
	if ascending {
		text += cursorAscending
	}
	return base64.URLEncoding.EncodeToString([]byte(text))
}

func decodeCursor(token string) (c cursor, ascending, ok bool) {
	text, err := base64.URLEncoding.DecodeString(token)
	if err != nil {
		return cursor{}, false, false
	}
	rest, ascending := strings.CutSuffix(string(text), cursorAscending)
	at, id, ok := strings.Cut(rest, cursorSeparator)
	if !ok {
		return cursor{}, false, false
	}
	c.id = id
	c.startedAt, err = time.Parse(time.RFC3339Nano, at)
	return c, ascending, err == nil
}

// parseMetadata reads a metadata filter. Clients escape each key and value,
// escape the pairs as a form, and escape that as a query value, so what arrives
// here after the query was parsed has two layers left.
func parseMetadata(filter string) (map[string]string, error) {
	if filter == "" {
		return nil, nil
	}
	pairs, err := url.QueryUnescape(filter)
	if err != nil {
		return nil, invalid("metadata cannot be unescaped")
	}
	metadata := map[string]string{}
	for pair := range strings.SplitSeq(pairs, "&") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || strings.Contains(value, "=") {
			return nil, invalid("metadata must be pairs of the form key=value")
		}
		key, keyErr := url.QueryUnescape(key)
		value, valueErr := url.QueryUnescape(value)
		if keyErr != nil || valueErr != nil {
			return nil, invalid("metadata cannot be unescaped")
		}
		metadata[key] = value
	}
	return metadata, nil
}
