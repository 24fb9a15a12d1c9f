package edge

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// 1,000 commands that run, and whose clients follow them, hold no place that another command needs.
func TestRunningCommandsDelayNone(t *testing.T) {
	t.Parallel()
	c := start(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	envd := serve(t, map[int]http.HandlerFunc{protocol.PortEnvd: func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "started")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}})
	for _, id := range []string{id, otherID} {
		c.Add(Sandbox{ID: id, Dial: envd})
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	run := func(id string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/process.Process/Start", http.NoBody)
		if err != nil {
			return err
		}
		r.Header = http.Header{protocol.HeaderSandboxID: {id}, protocol.HeaderSandboxPort: {fmt.Sprint(protocol.PortEnvd)}}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { _ = answer.Body.Close() })
		_, err = io.ReadFull(answer.Body, make([]byte, len("started")))
		if answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("a command of %s: %s", id, answer.Status)
		}
		return err
	}
	var all errgroup.Group
	all.SetLimit(20)
	for i := range 1000 {
		all.Go(func() error { return run([]string{id, otherID}[i%2]) })
	}
	must.Do(t, all.Wait())
	for _, id := range []string{id, otherID} {
		must.Do(t, run(id))
	}
}
