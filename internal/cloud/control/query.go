package control

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
)

// query has the parameters of a request, and remembers which of them the handler has read:
// a successful handler reads all that the cloud knows.
type query struct {
	values url.Values
	asked  []string
}

// newQuery parses a query. URL.Query would leave out the parts that it cannot parse.
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

// logIgnored adds the parameters that were not read to the request log, as ?name. It
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

// parseQuery parses the query of a request, and keeps it for noticing.
func parseQuery(r *http.Request) (*query, error) {
	q, err := newQuery(r.URL.RawQuery)
	if to, ok := r.Context().Value(queryKey{}).(**query); ok && err == nil {
		*to = q
	}
	return q, err
}

// noticing calls h. If h succeeds, it logs the parameters that h did not read.
func noticing(h handler, w http.ResponseWriter, r *http.Request) error {
	q := &query{values: r.URL.Query()} // unless h parses it
	err := h(w, r.WithContext(context.WithValue(r.Context(), queryKey{}, &q)))
	if err == nil {
		q.logIgnored(r.Context())
	}
	return err
}
