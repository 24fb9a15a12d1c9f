//go:build linux

package envd

import (
	"encoding/json"
	"net/http"
	"strings"
)

// router routes requests more strictly than [http.ServeMux], as envd does: a GET route does not
// accept HEAD, and a wrong method is answered with 405 and no body.
type router struct {
	routes   map[string]map[string]http.HandlerFunc // handlers by path, then by method
	services map[string]http.Handler                // handlers of services by path prefix
}

func newRouter() *router {
	return &router{
		routes:   make(map[string]map[string]http.HandlerFunc),
		services: make(map[string]http.Handler),
	}
}

func (r *router) handle(method, path string, h http.HandlerFunc) {
	if r.routes[path] == nil {
		r.routes[path] = make(map[string]http.HandlerFunc)
	}
	r.routes[path][method] = h
}

// mount adds a Connect service, with the two results of a generated NewXxxHandler.
func (r *router) mount(prefix string, h http.Handler) { r.services[prefix] = h }

func (r *router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if methods, ok := r.routes[req.URL.Path]; ok {
		if h, ok := methods[req.Method]; ok {
			h(w, req)
			return
		}
		for method := range methods {
			w.Header().Add("Allow", method)
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if end := strings.IndexByte(strings.TrimPrefix(req.URL.Path, "/"), '/'); end > 0 {
		if h, ok := r.services[req.URL.Path[:end+2]]; ok {
			h.ServeHTTP(w, req)
			return
		}
	}
	http.NotFound(w, req)
}

// writeError answers with an error on a plain route. The code of the error is a number, whereas
// Connect uses words.
func writeError(w http.ResponseWriter, status int, message string) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	writeJSON(w, status, "application/json; charset=utf-8", struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{status, message})
}

// writeAnswer answers on a plain route: a route of no Connect service. The content type of the
// answer has no character set, because some clients compare the whole content type. The content
// type of errors has a character set.
func writeAnswer(w http.ResponseWriter, v any) { writeJSON(w, http.StatusOK, "application/json", v) }

func writeJSON(w http.ResponseWriter, status int, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // the client has gone, so the error cannot be reported
}
