package control

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
)

// query holds the parameters of a request, and records which of them the handler reads. A
// handler that succeeds reads all parameters that it knows.
type query struct {
	values url.Values
	asked  []string
}

// newQuery parses a query. It returns an error for malformed parts, which URL.Query would leave
// out.
func newQuery(raw string) (*query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalid("the query cannot be parsed")
	}
	return &query{values: values}, nil
}

// Get returns a parameter. It returns "" if the parameter is absent.
func (q *query) Get(name string) string {
	q.asked = append(q.asked, name)
	return q.values.Get(name)
}

// All returns all values of a parameter.
func (q *query) All(name string) []string {
	q.asked = append(q.asked, name)
	return q.values[name]
}

// logIgnored adds the parameters that were not read to the request log, as ?name. It does not
// log their values, which may be secrets.
func (q *query) logIgnored(ctx context.Context) {
	var ignored []string
	for name := range q.values {
		if !slices.Contains(q.asked, name) {
			ignored = append(ignored, "?"+name)
		}
	}
	slices.Sort(ignored)
	requestlog.Ignored(ctx, ignored...)
}

type queryKey struct{}

// parseQuery parses the query of a request. It also keeps the query, so that noticing can find the
// parameters that were not read.
func parseQuery(r *http.Request) (*query, error) {
	q, err := newQuery(r.URL.RawQuery)
	if to, ok := r.Context().Value(queryKey{}).(**query); ok && err == nil {
		*to = q
	}
	return q, err
}

// noticing calls h. If h succeeds, it logs the parameters that h did not read.
func noticing(h handler, w http.ResponseWriter, r *http.Request) error {
	q := &query{values: r.URL.Query()} // used unless h parses the query
	err := h(w, r.WithContext(context.WithValue(r.Context(), queryKey{}, &q)))
	if err == nil {
		q.logIgnored(r.Context())
	}
	return err
}
