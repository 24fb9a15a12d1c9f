package control

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// maxPage is the largest page of a list, and the default page size.
const maxPage = 100

func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	q, err := s.parseListQuery(query)
	if err != nil {
		return err
	}
	if q.Running {
		w.Header().Set("X-Total-Running", strconv.Itoa(s.sandboxes.Running(q)))
	}
	limit := q.Limit
	q.Limit++
	page := s.sandboxes.Page(q)
	if len(page) > limit {
		page = page[:limit]
		w.Header().Set(protocol.HeaderNextToken, cursorOf(page[limit-1]).encode(q.Ascending))
	}
	s.writeList(w, page)
	return nil
}

// listRunning answers the list of the first generation: newest first, without pages.
func (s *Service) listRunning(w http.ResponseWriter, r *http.Request) error {
	values, err := parseQuery(r)
	if err != nil {
		return err
	}
	metadata, err := parseMetadata(values.Get("metadata"))
	if err != nil {
		return err
	}
	s.writeList(w, s.sandboxes.Page(lifecycle.Query{Running: true, Match: matching(metadata, "")}))
	return nil
}

func (s *Service) writeList(w http.ResponseWriter, found []*lifecycle.Sandbox) {
	answer := make([]listed, len(found))
	for i, sb := range found {
		answer[i] = s.listed(*sb)
	}
	writeJSON(w, http.StatusOK, answer)
}

// matching returns a condition. It matches the sandboxes that have all entries of metadata and were
// made from template; "" means any template. A nil condition matches all sandboxes.
func matching(metadata map[string]string, template string) func(*lifecycle.Sandbox) bool {
	if len(metadata) == 0 && template == "" {
		return nil
	}
	return func(sb *lifecycle.Sandbox) bool {
		for key, want := range metadata {
			if got, ok := sb.Metadata[key]; !ok || got != want {
				return false
			}
		}
		return template == "" || template == sb.Template.ID
	}
}

// parseListQuery parses the query of GET /v2/sandboxes.
func (s *Service) parseListQuery(values *query) (lifecycle.Query, error) {
	q := lifecycle.Query{}
	metadata, err := parseMetadata(values.Get("metadata"))
	if err != nil {
		return lifecycle.Query{}, err
	}
	states := values.Get("state")
	q.Running, q.Paused = states == "", states == ""
	if states != "" {
		for state := range strings.SplitSeq(states, ",") {
			switch state {
			case stateRunning:
				q.Running = true
			case statePaused:
				q.Paused = true
			default:
				return lifecycle.Query{}, invalid("state must be running or paused")
			}
		}
	}
	switch values.Get("order") {
	case "", "desc":
	case "asc":
		q.Ascending = true
	default:
		return lifecycle.Query{}, invalid("order must be asc or desc")
	}
	if after := values.Get("startedAfter"); after != "" {
		t, err := time.Parse(time.RFC3339, after)
		if err != nil {
			return lifecycle.Query{}, invalid("startedAfter must be an RFC 3339 time")
		}
		q.StartedAfter = t.Truncate(time.Microsecond)
	}
	template, nothing := "", false
	if name := values.Get("template"); name != "" {
		if strings.Contains(name, ":") {
			return lifecycle.Query{}, invalid("template must not have a tag here")
		}
		t, err := s.templates.Get(templates.ParseReference(name))
		template, nothing = t.ID, err != nil
	}
	if q.Match = matching(metadata, template); nothing {
		q.Match = func(*lifecycle.Sandbox) bool { return false }
	}
	if q.Limit, err = pageLimit("limit", values.Get("limit"), maxPage); err != nil {
		return lifecycle.Query{}, err
	}
	if token := values.Get("nextToken"); token != "" {
		c, ascending, ok := decodeCursor(token)
		if !ok || ascending != q.Ascending {
			return lifecycle.Query{}, errBadToken
		}
		q.After = (*ordered.Position)(&c)
	}
	return q, nil
}

const (
	cursorSeparator = "__"
	cursorAscending = "__asc"
)

// cursor is the position of the last element of a page.
type cursor ordered.Position

func cursorOf(sb *lifecycle.Sandbox) cursor { return cursor(sb.Position()) }

func (c cursor) encode(ascending bool) string {
	text := c.At.Format(time.RFC3339Nano) + cursorSeparator + c.ID
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
	c.ID = id
	c.At, err = time.Parse(time.RFC3339Nano, at)
	return c, ascending, err == nil
}

// parseMetadata parses a metadata filter. Clients escape three times: each key and value, then the
// pairs as a form, and then the form as a query value. Parsing the query undoes the last escaping;
// parseMetadata undoes the other two.
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
