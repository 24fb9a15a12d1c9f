//go:build linux

package envd

import (
	"net/http"
	"slices"
	"strings"
)

var (
	crossOriginMethods = []string{"HEAD", "GET", "POST", "PUT", "PATCH", "DELETE"}
	crossOriginExposed = strings.Join([]string{
		"Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin",
		"Location", "Cache-Control", "X-Content-Type-Options",
	}, ", ")
)

// allowCrossOrigin allows requests from every origin. The token protects a sandbox, and no
// cookie authorizes a request.
func allowCrossOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		origin := r.Header.Get("Origin")
		method := r.Header.Get("Access-Control-Request-Method")
		if r.Method != http.MethodOptions || method == "" {
			header.Add("Vary", "Origin")
			if origin != "" {
				header.Set("Access-Control-Allow-Origin", "*")
				header.Set("Access-Control-Expose-Headers", crossOriginExposed)
			}
			next.ServeHTTP(w, r)
			return
		}
		header.Add("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers")
		if origin != "" && slices.Contains(crossOriginMethods, method) {
			header.Set("Access-Control-Allow-Origin", "*")
			header.Set("Access-Control-Allow-Methods", method)
			if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
				header.Set("Access-Control-Allow-Headers", names)
			}
			header.Set("Access-Control-Max-Age", "7200")
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
