package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestAwaitedInside checks how long a command waits for files and ports of a sandbox, and with which answers it ends.
func TestAwaitedInside(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	const absent, gone = "absent", "gone"
	for name, tt := range map[string]struct {
		conditions string
		states     []string // the states of the sandbox, one after the other
		answers    []string // of the file or the port; "": it is there
		limit      time.Duration
		is         error
		took       time.Duration
	}{
		"a file at once":             {conditions: "file=a", states: []string{"running"}, answers: []string{""}},
		"a file later":               {conditions: "file=a", states: []string{"running"}, answers: []string{absent, absent, ""}, took: 2 * waitEvery},
		"two files":                  {conditions: "file=a file=a", states: []string{"running"}, answers: []string{absent, "", absent, ""}, took: 2 * waitEvery},
		"once it runs":               {conditions: "file=a", states: []string{"paused", "paused", "running"}, answers: []string{""}, took: 2 * waitEvery},
		"a file of one that is gone": {conditions: "file=a", states: []string{"running", "404"}, answers: []string{absent, gone}, took: waitEvery, is: sandbox.ErrGone},
		"one that is gone":           {conditions: "file=a", states: []string{"paused", "404"}, took: waitEvery, is: sandbox.ErrGone},
		"a file, no longer":          {conditions: "file=a", states: []string{"running"}, answers: []string{absent}, limit: waitEvery * 5 / 2, took: waitEvery * 5 / 2, is: enough},
		"a port at once":             {conditions: "port=9 file=a", states: []string{"running"}, answers: []string{"", ""}},
		"a port of one that is gone": {conditions: "port=9", states: []string{"running", "404"}, answers: []string{gone}, is: sandbox.ErrGone},
		"a port, no longer":          {conditions: "port=9", states: []string{"running"}, answers: []string{absent}, limit: time.Hour, took: time.Hour, is: enough},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked, states := 0, 0
			next := func(all []string, at *int) string {
				answer := all[min(*at, len(all)-1)]
				*at++
				return answer
			}
			opts := &waitOptions{IO: cmdutil.NewIOStreams(nil, io.Discard, nil), ID: "i1"}
			for condition := range strings.FieldsSeq(tt.conditions) {
				must.Do(t, opts.add(condition))
			}
			opts.Open = opened(t, func(w http.ResponseWriter, r *http.Request) {
				port := r.Header.Get("E2b-Sandbox-Port")
				switch isFile := strings.HasSuffix(r.URL.Path, "/Stat"); {
				case strings.HasSuffix(r.URL.Path, "/connect"):
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, `{"sandboxID":"i1","templateID":"t","envdVersion":"0.6.13","envdAccessToken":"x"}`)
				case !isFile && port == "":
					state := next(tt.states, &states)
					if state == "404" {
						w.WriteHeader(http.StatusNotFound)
						state = `","message":"no such sandbox`
					}
					fmt.Fprintf(w, `{"sandboxID":"i1","state":"%s"}`, state)
				default:
					answer := next(tt.answers, &asked)
					switch {
					case answer == gone:
						w.WriteHeader(http.StatusBadGateway)
						_, _ = io.WriteString(w, `{"sandboxId":"i1","message":"The sandbox was not found","code":502}`)
					case answer == absent && isFile:
						w.Header().Set("Content-Type", "application/json")
						w.WriteHeader(http.StatusNotFound)
						_, _ = io.WriteString(w, `{"code":"not_found","message":"no such file"}`)
					case answer == absent:
						w.WriteHeader(http.StatusBadGateway)
						fmt.Fprintf(w, `{"sandboxId":"i1","message":"The sandbox is running but port is not open","port":%s,"code":502}`, port)
					case isFile:
						w.Header().Set("Content-Type", "application/proto")
						_, _ = io.WriteString(w, "\x0a\x03\x0a\x01a") // an entry with the name a
					}
				}
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tt.limit > 0 {
				defer time.AfterFunc(tt.limit, func() { cancel(enough) }).Stop()
			}
			begun := time.Now()
			err := waitRun(ctx, opts)
			if took := time.Since(begun); !errors.Is(err, tt.is) || (err == nil) != (tt.is == nil) || took != tt.took || asked < len(tt.answers) {
				t.Errorf("%s: got error %v after %v and %d answers, want %v after %v and %d", name, err, took, asked, tt.is, tt.took, len(tt.answers))
			}
			if _, isAnswer := errors.AsType[*api.Error](err); isAnswer && len(tt.answers) > 0 {
				t.Errorf("%s: the error has the answer of the service: %v", name, err)
			}
		})
	}
}
