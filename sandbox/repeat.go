package sandbox

import (
	"net/http"
	"time"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
)

// questions lists the RPCs that change nothing.
var questions = map[string]bool{
	filesystemconnect.FilesystemStatProcedure:    true,
	filesystemconnect.FilesystemListDirProcedure: true,
	processconnect.ProcessListProcedure:          true,
}

// repeat returns a copy of a request that ended without an answer because the sandbox was paused.
// The caller sends the copy. If this handle requested the pause, repeat first waits until the pause
// is over. ok is false if a pause was not the reason, if the request may have changed something, or
// if its body cannot be read again.
func (p portClient) repeat(r *http.Request, begun time.Time) (again *http.Request, ok bool) {
	ctx := r.Context()
	question := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodPost && questions[r.URL.Path]
	replayed := r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
	if !question || !replayed || ctx.Err() != nil {
		return nil, false
	}
	if was, _ := p.sb.pauseSince(ctx, begun); !was {
		return nil, false
	}
	p.sb.asleep.wait(ctx)
	again = r.Clone(ctx)
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, false
		}
		again.Body = body
	}
	return again, true
}
