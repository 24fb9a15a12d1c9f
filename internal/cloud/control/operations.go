package control

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// operationUpload is the operation that uploads an archive to a signed address.
const operationUpload = "UploadFiles"

// operationsByCall maps methods and paths, as patterns for a multiplexer, to names of
// operations.
func (s *Service) operationsByCall() map[string]string {
	names := map[string]string{"PUT " + pathUploads: operationUpload}
	for _, table := range [][]route{s.table(), s.slowTable(), s.belowTemplate()} {
		for _, call := range table {
			if call.operation != "" {
				names[call.method+" "+call.path] = call.operation
			}
		}
	}
	for _, call := range contentCalls {
		names[call.pattern] = call.operation
	}
	return names
}

// Operations returns the names of all operations of the API, sorted.
func Operations() []string {
	return slices.Compact(slices.Sorted(maps.Values(new(Service).operationsByCall())))
}

// Operation returns the name of a request's operation. It returns "" if the API does not have
// the operation.
func (s *Service) Operation(r *http.Request) string {
	switch {
	case strings.HasPrefix(r.URL.Path, pathUploads):
		return s.operations[r.Method+" "+pathUploads]
	case strings.HasPrefix(r.URL.Path, pathVolumeContent):
		_, pattern := s.contents.Handler(r)
		return s.operations[pattern]
	}
	_, pattern := s.mux.Handler(r)
	if pattern == pathBelowTemplate && r.Method == http.MethodGet {
		below := strings.SplitN(r.URL.Path, "/", 4)[3]
		i := slices.IndexFunc(s.belowTemplate(), func(call route) bool { _, ok := match(call.path, below); return ok })
		if i < 0 {
			return ""
		}
		return s.belowTemplate()[i].operation
	}
	return s.operations[r.Method+" "+pattern]
}
