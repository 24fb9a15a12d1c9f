package control

import (
	"context"
	"net/http"
	"slices"
	"strings"
)

// handler answers one method of one path. Its error becomes the error answer. A handler that
// returns an error must not have written an answer.
type handler func(w http.ResponseWriter, r *http.Request) error

// route is one call of the API.
type route struct {
	operation    string // "" for calls that this service does not have, and for ofTemplate
	method, path string
	handler      handler
}

// table returns the calls of the API that are answered within requestDeadline. It includes
// unsupported calls of the real service: their answer names the missing feature, which tells
// the user more than a bare 404.
func (s *Service) table() []route {
	return []route{
		{"ListSandboxes", "GET", "/sandboxes", s.listRunning},
		{"ListSandboxes", "GET", "/v2/sandboxes", s.list},
		{"GetSandbox", "GET", "/sandboxes/{id}", s.get},
		{"KillSandbox", "DELETE", "/sandboxes/{id}", s.kill},
		{"ConnectSandbox", "POST", "/sandboxes/{id}/connect", s.connect(version1)},
		{"ConnectSandbox", "POST", "/v2/sandboxes/{id}/connect", s.connect(version2)},
		{"ResumeSandbox", "POST", "/sandboxes/{id}/resume", s.resume},
		{"SetSandboxTimeout", "POST", "/sandboxes/{id}/timeout", s.timeout},
		{"RefreshSandbox", "POST", "/sandboxes/{id}/refreshes", s.refresh},
		{"GetTemplateAlias", "GET", "/templates/aliases/{alias}", s.alias},
		{"SetSandboxNetwork", "PUT", "/sandboxes/{id}/network", s.setNetwork},
		{"GetSandboxMetrics", "GET", "/sandboxes/{id}/metrics", s.metrics},
		{"GetSandboxLogs", "GET", "/sandboxes/{id}/logs", s.logs(s.logs1)},
		{"GetSandboxLogs", "GET", "/v2/sandboxes/{id}/logs", s.logs(s.logs2)},
		{"ListSandboxMetrics", "GET", "/sandboxes/metrics", s.metricsOf},
		{"ListEvents", "GET", "/events/sandboxes", s.listEvents},
		{"ListSandboxEvents", "GET", "/events/sandboxes/{id}", s.sandboxEvents},
		{"ListSnapshots", "GET", "/snapshots", s.listSnapshots},
		{"ListTeams", "GET", pathTeams, s.teams},
		{"ListKeys", "GET", pathKeys, s.listKeys},
		{"CreateKey", "POST", pathKeys, s.changingKeys(s.createKey)},
		{"RenameKey", "PATCH", pathKeys + "/{id}", s.changingKeys(s.renameKey)},
		{"DeleteKey", "DELETE", pathKeys + "/{id}", s.changingKeys(s.deleteKey)},
		{"", "GET", "/teams/{id}/{rest...}", unserved("metrics of teams")},
		{"ListDefaultTemplates", "GET", "/default-templates", s.defaultTemplates},
		{"ListTemplates", "GET", "/templates", s.listTemplates},
		{"ListTemplates", "GET", "/v2/templates", s.pageTemplates},
		{"RequestBuild", "POST", "/v3/templates", s.requestBuild},
		{"GetTemplate", "GET", "/templates/{id}", s.getTemplate},
		{"DeleteTemplate", "DELETE", "/templates/{id}", s.deleteTemplate},
		{"PublishTemplate", "PATCH", "/templates/{id}", s.publish},
		{"AssignTags", "POST", "/templates/tags", s.assignTags},
		{"RemoveTags", "DELETE", "/templates/tags", s.removeTags},
		{"", "GET", pathBelowTemplate, s.ofTemplate},
		{"StartBuild", "POST", "/v2/templates/{id}/builds/{build}", s.startBuild},
		{"PublishTemplate", "PATCH", "/v2/templates/{id}", s.publish},
		{"GetSpace", "GET", "/local/space", s.space},
		{"EmptyBuildCache", "DELETE", "/local/space/cache", s.emptyCache},
		{"GetFeatures", "GET", "/local/features", s.features},
		{"ResizeSandbox", "POST", "/local/sandboxes/{id}/resources", s.resize},
		{"ListAsks", "GET", "/local/sandboxes/{id}/asks", s.asks},
		{"AnswerAsk", "POST", "/local/sandboxes/{id}/asks", s.answerAsk},
		{"ListVolumes", "GET", "/volumes", s.listVolumes},
		{"CreateVolume", "POST", "/volumes", s.createVolume},
		{"GetVolume", "GET", "/volumes/{id}", s.getVolume},
		{"DeleteVolume", "DELETE", "/volumes/{id}", s.deleteVolume},
		{"ListSecrets", "GET", "/secrets", s.listSecrets},
		{"CreateSecret", "POST", "/secrets", s.createSecret},
		{"GetSecret", "GET", "/secrets/{id}", s.getSecret},
		{"UpdateSecret", "POST", "/secrets/{id}", s.updateSecret},
		{"DeleteSecret", "DELETE", "/secrets/{id}", s.deleteSecret},
	}
}

// slowTable returns the calls that save a sandbox or fetch an image. They have no deadline for that
// part of their work, because it takes long and the client waits for it.
func (s *Service) slowTable() []route {
	return []route{
		{"CreateSandbox", "POST", "/sandboxes", s.create(version1)},
		{"CreateSandbox", "POST", "/v2/sandboxes", s.create(version2)},
		{"PauseSandbox", "POST", "/sandboxes/{id}/pause", s.pause},
		{"ForkSandbox", "POST", "/sandboxes/{id}/fork", s.fork},
		{"SnapshotSandbox", "POST", "/sandboxes/{id}/snapshots", s.snapshot},
	}
}

// routes returns the handler of the API.
func (s *Service) routes() *http.ServeMux {
	mux := http.NewServeMux()
	table := s.slowTable()
	for _, r := range s.table() {
		r.handler = inTime(r.handler)
		table = append(table, r)
	}
	for path, methods := range byPath(table) {
		mux.Handle(path, s.dispatch(methods))
	}
	for name, what := range unservedPaths {
		mux.Handle(name, s.dispatch(what))
		mux.Handle(name+"/{rest...}", s.dispatch(what))
	}
	mux.Handle("/", s.dispatch(nil))
	return mux
}

func byPath(table []route) map[string]map[string]handler {
	paths := map[string]map[string]handler{}
	for _, r := range table {
		if paths[r.path] == nil {
			paths[r.path] = map[string]handler{}
		}
		paths[r.path][r.method] = r.handler
	}
	return paths
}

// inTime returns a handler whose requests have a deadline.
func inTime(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), requestDeadline)
		defer cancel()
		return h(w, r.WithContext(ctx))
	}
}

// dispatch chooses the handler by method. The mux could also do this, but its refusal of a method
// would lack the JSON body. Clients show the message in that body.
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

// unservedPaths maps paths to the methods that the service has for them. These paths, and all
// paths below them, are refused.
var unservedPaths = map[string]map[string]handler{
	"/access-tokens":   unservedMethods("access tokens, which are deprecated: use an API key"),
	"/nodes":           unservedMethods("nodes: it is one machine"),
	"/admin":           unservedMethods("administration of a cluster"),
	"/events/webhooks": unservedMethods("webhooks of events"),
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
	if e.Code == http.StatusInternalServerError && r.Context().Err() == nil { // otherwise the client caused the error by leaving
		s.options.Logger.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", bounded(r.URL.Path), "error", err)
	}
	// No error of this API disappears when a request is repeated immediately, as some SDKs
	// would do.
	w.Header().Set("Should-Retry", "false")
	writeJSON(w, e.Code, e)
}
