package control

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
)

// query has the parameters of a request. It remembers which of them were asked for: a
// request that succeeds asks for all that the cloud knows.
type query struct {
	values url.Values
	asked  []string
}

// newQuery reads a query. The one of a request's URL leaves out what it cannot read.
func newQuery(raw string) (*query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalid("the query cannot be parsed")
	}
	return &query{values: values}, nil
}

// Get returns the parameter of that name; "" if it is not given.
func (q *query) Get(name string) string {
	q.asked = append(q.asked, name)
	return q.values.Get(name)
}

// logIgnored names the parameters that were not asked for in the request log, as ?name. It
// leaves out their values, which may be secrets.
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

// parseQuery reads the query of a request that dispatch passed on.
func parseQuery(r *http.Request) (*query, error) {
	q, err := newQuery(r.URL.RawQuery)
	if to, ok := r.Context().Value(queryKey{}).(**query); ok && err == nil {
		*to = q
	}
	return q, err
}

// noticing calls h, and logs the parameters that it succeeded without.
func noticing(h handler, w http.ResponseWriter, r *http.Request) error {
	q := &query{values: r.URL.Query()} // unless h reads it
	err := h(w, r.WithContext(context.WithValue(r.Context(), queryKey{}, &q)))
	if err == nil {
		q.logIgnored(r.Context())
	}
	return err
}
