//go:build linux

package envd

import (
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
)

// maxRequests bounds the number of concurrent requests. Most of them are streams, which last as
// long as a process.
const maxRequests = 4096

var errTooManyRequests = fmt.Errorf("too many requests at once: the bound is %d", maxRequests)

// boundRequests refuses requests above maxRequests, except health checks.
func boundRequests(next http.Handler) http.Handler {
	places := make(chan struct{}, maxRequests)
	writer := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			next.ServeHTTP(w, r)
		default:
			if strings.HasPrefix(r.URL.Path, "/"+processconnect.ProcessName) || strings.HasPrefix(r.URL.Path, "/"+filesystemconnect.FilesystemName) {
				_ = writer.Write(w, r, connect.NewError(connect.CodeResourceExhausted, errTooManyRequests))
				return
			}
			writeError(w, http.StatusTooManyRequests, errTooManyRequests.Error())
		}
	})
}
