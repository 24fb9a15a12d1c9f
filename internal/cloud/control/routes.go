package control

import (
	"context"
	"net/http"
	"slices"
	"strings"
)

// handler answers one method of one path. The error it returns becomes the
// error answer; in that case it must not have written anything.
type handler func(w http.ResponseWriter, r *http.Request) error

// routes returns the table of the API. It includes paths that the real service
// has and this one does not support, so that a user reads what is missing
// instead of a bare 404.
func (s *Service) routes() *http.ServeMux {
	table := map[string]map[string]handler{
		"/sandboxes":                        {"POST": s.create(version1), "GET": s.listRunning},
		"/v2/sandboxes":                     {"POST": s.create(version2), "GET": s.list},
		"/sandboxes/{id}":                   {"GET": s.get, "DELETE": s.kill},
		"/sandboxes/{id}/connect":           {"POST": s.connect(version1)},
		"/v2/sandboxes/{id}/connect":        {"POST": s.connect(version2)},
		"/sandboxes/{id}/resume":            {"POST": s.resume},
		"/sandboxes/{id}/timeout":           {"POST": s.timeout},
		"/sandboxes/{id}/refreshes":         {"POST": s.refresh},
		"/templates/aliases/{alias}":        {"GET": s.alias},
		"/sandboxes/{id}/network":           {"PUT": s.setNetwork},
		"/sandboxes/{id}/metrics":           {"GET": s.metrics},
		"/sandboxes/{id}/logs":              {"GET": s.logs(s.logs1)},
		"/v2/sandboxes/{id}/logs":           {"GET": s.logs(s.logs2)},
		"/sandboxes/metrics":                {"GET": s.metricsOf},
		"/snapshots":                        {"GET": s.listSnapshots},
		pathTeams:                           {"GET": s.teams},
		pathKeys:                            {"GET": s.listKeys, "POST": s.createKey},
		pathKeys + "/{id}":                  {"PATCH": s.renameKey, "DELETE": s.deleteKey},
		"/teams/{id}/{rest...}":             {"GET": unserved("metrics of teams")},
		"/default-templates":                {"GET": s.defaultTemplates},
		"/templates":                        {"GET": s.listTemplates},
		"/v2/templates":                     {"GET": s.pageTemplates},
		"/v3/templates":                     {"POST": s.requestBuild},
		"/templates/{id}":                   {"GET": s.getTemplate, "DELETE": s.deleteTemplate, "PATCH": s.publish},
		"/templates/tags":                   {"POST": s.assignTags, "DELETE": s.removeTags},
		"/templates/{id}/{rest...}":         {"GET": s.ofTemplate},
		"/v2/templates/{id}/builds/{build}": {"POST": s.startBuild},
		"/v2/templates/{id}":                {"PATCH": s.publish},
		"/local/space":                      {"GET": s.space},
		"/local/space/cache":                {"DELETE": s.emptyCache},
		"/local/features":                   {"GET": s.features},
		"/local/sandboxes/{id}/asks":        {"GET": s.asks, "POST": s.answerAsk},
		"/volumes":                          {"GET": s.listVolumes, "POST": s.createVolume},
		"/volumes/{id}":                     {"GET": s.getVolume, "DELETE": s.deleteVolume},
		"/secrets":                          {"GET": s.listSecrets, "POST": s.createSecret},
		"/secrets/{id}":                     {"GET": s.getSecret, "POST": s.updateSecret, "DELETE": s.deleteSecret},
	}
	for name, what := range unservedPaths {
		table[name], table[name+"/{rest...}"] = what, what
	}
	mux := http.NewServeMux()
	for path, methods := range table {
		mux.Handle(path, inTime(s.dispatch(methods)))
	}
	// These take as long as it takes to save what is in a sandbox, and as the client waits.
	for path, h := range map[string]handler{
		"/sandboxes/{id}/pause":     s.pause,
		"/sandboxes/{id}/fork":      s.fork,
		"/sandboxes/{id}/snapshots": s.snapshot,
	} {
		mux.Handle(path, s.dispatch(map[string]handler{"POST": h}))
	}
	mux.Handle("/", s.dispatch(nil))
	return mux
}

// inTime bounds the time of a request.
func inTime(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestDeadline)
		defer cancel()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// dispatch chooses the handler by method. It does what the mux itself would do,
// but with the JSON body that clients need to show a message.
func (s *Service) dispatch(methods map[string]handler) http.Handler {
	allowed := make([]string, 0, len(methods))
	for m := range methods {
		allowed = append(allowed, m)
	}
	slices.Sort(allowed)
	allow := strings.Join(allowed, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, ok := methods[r.Method]
		switch {
		case ok:
			if err := noticing(h, w, r); err != nil {
				s.fail(w, r, err)
			}
		case methods == nil:
			s.fail(w, r, errorf(http.StatusNotFound, "no such path in the API: %s", bounded(r.URL.Path)))
		default:
			w.Header().Set("Allow", allow)
			s.fail(w, r, errorf(http.StatusMethodNotAllowed, "%s is not allowed on %s, only %s", bounded(r.Method), bounded(r.URL.Path), allow))
		}
	})
}

// unservedPaths are those that are refused with all that is below them, and the methods that
// the service has for them.
var unservedPaths = map[string]map[string]handler{
	"/access-tokens": unservedMethods("access tokens, which are deprecated: use an API key"),
	"/nodes":         unservedMethods("nodes: it is one machine"),
	"/admin":         unservedMethods("administration of a cluster"),
	"/events":        unservedMethods("events of sandboxes"),
}

func unservedMethods(what string) map[string]handler {
	methods := map[string]handler{}
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		methods[m] = unserved(what)
	}
	return methods
}

func unserved(what string) handler {
	return func(http.ResponseWriter, *http.Request) error {
		return errorf(http.StatusNotImplemented, "not supported by this local cloud: %s", what)
	}
}

// fail writes the error answer of the API.
func (s *Service) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := answerFor(err)
	if e.Code == http.StatusInternalServerError && r.Context().Err() == nil { // otherwise the client has gone
		s.options.Logger.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", bounded(r.URL.Path), "error", err)
	}
	// No error here goes away if the request is repeated immediately, which
	// some SDKs would do.
	w.Header().Set("Should-Retry", "false")
	writeJSON(w, e.Code, e)
}
