//go:build linux

package e2e

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// said returns the entry of a log by that logger whose message begins with message, or
// nil.
func said(entries []sandbox.LogEntry, logger, message string) *sandbox.LogEntry {
	for _, e := range entries {
		if e.Fields["logger"] == logger && strings.HasPrefix(e.Message, message) {
			return &e
		}
	}
	return nil
}

// TestLogs checks that the log of a sandbox has its events, can be followed, and exists
// after its end. The entries of one logger are in the order of the events; lines from
// inside a sandbox take their own way, and may arrive later than those of the server.
func TestLogs(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	c := client(t, cloud)
	sb := cloud.Create(t, sandbox.WithEnvs(startsCold), sandbox.WithNetwork(sandbox.Network{DenyOut: []string{"0.0.0.0/0"}}))
	followed := make(chan []sandbox.LogEntry, 1)
	go func() {
		var all []sandbox.LogEntry
		for e, err := range c.Logs(t.Context(), sb.ID(), &sandbox.LogParams{Follow: true}) {
			if err != nil {
				t.Error(err)
				break
			}
			all = append(all, e)
		}
		followed <- all
	}()

	if _, err := sb.Commands.Run(t.Context(), "exit 3", &sandbox.CommandParams{Envs: map[string]string{"MARK": "an environment value"}}); err == nil {
		t.Error("exit 3 succeeded")
	}
	sandboxtest.Run(t, sb, "curl -s -m 5 https://denied.example:444/ || :")
	sandboxtest.Eval(t, sb, "1")
	if _, err := sb.RunCode(t.Context(), "import os; os._exit(5)", nil); err == nil {
		t.Error("a kernel that exits succeeded")
	}
	must.Do(t, sb.Pause(t.Context(), nil))
	must.Do(t, sb.Resume(t.Context(), nil))
	if _, err := sb.Snapshot(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	must.Do(t, sb.Kill(t.Context()))

	all := patience.Receive(t, "the end of the log that is followed", followed)
	if !slices.IsSortedFunc(all, func(a, b sandbox.LogEntry) int { return a.Time.Compare(b.Time) }) {
		t.Errorf("got %+v, want the oldest entry first", all)
	}
	last := map[string]time.Time{} // by logger
	for _, want := range []struct{ logger, message string }{
		{"lifecycle", "sandbox created"}, {"process", "process started"}, {"process", "process ended"}, {"kernel", "kernel died"},
		{"lifecycle", "sandbox paused"}, {"lifecycle", "sandbox resumed"}, {"lifecycle", "snapshot of a sandbox: it has the files, and not the memory"},
		{"lifecycle", "sandbox ended"},
	} {
		e := said(all, want.logger, want.message)
		if e == nil {
			t.Errorf("nothing from %s begins with %q", want.logger, want.message)
			continue
		}
		if e.Time.Before(last[want.logger]) {
			t.Errorf("%q came before what happened before it", want.message)
		}
		last[want.logger] = e.Time
	}
	for _, want := range []struct{ logger, message string }{{"kernel", "kernel started"}, {"kernel", "code ended"}, {"network", "denied to a sandbox"}} {
		if said(all, want.logger, want.message) == nil {
			t.Errorf("nothing from %s begins with %q", want.logger, want.message)
		}
	}
	for _, e := range all {
		for _, value := range e.Fields {
			if strings.Contains(value, "an environment value") {
				t.Errorf("the log has the value of a variable: %+v", e)
			}
		}
	}

	var again []sandbox.LogEntry
	for e, err := range c.Logs(t.Context(), sb.ID(), &sandbox.LogParams{Tail: 1000}) {
		must.Do(t, err)
		again = append(again, e)
	}
	if !slices.EqualFunc(all, again, func(a, b sandbox.LogEntry) bool { return a.Time.Equal(b.Time) && a.Message == b.Message }) {
		t.Errorf("after the end there are %d entries, followed were %d", len(again), len(all))
	}
	for e, err := range c.Logs(t.Context(), sb.ID(), &sandbox.LogParams{Level: sandbox.LogWarn, Search: "KERNEL"}) {
		if err != nil || e.Message != "kernel died" {
			t.Errorf("got %+v, %v of warnings about kernels, want that one died", e, err)
		}
	}
	if _, err := c.Metrics(t.Context(), sb.ID(), nil); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("metrics after the end: got %v, want %v", err, sandbox.ErrGone)
	}
}

// TestLogsOfClosedHandle checks that the body of a loop may close the handle, and that a
// waiting loop ends when another goroutine does.
func TestLogsOfClosedHandle(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, local.WithWarm(0)).Create(t)
	var last error
	closed := false
	for _, err := range sb.Logs(t.Context(), &sandbox.LogParams{Follow: true}) {
		if last = err; closed {
			continue
		}
		closed = true
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	}
	if !closed || !errors.Is(last, sandbox.ErrClosed) {
		t.Errorf("the loop ended with %v, want %v", last, sandbox.ErrClosed)
	}
}

// TestFloodedLogs checks that a sandbox that floods its log takes no more than its share,
// is still served, and leaves others their logs.
func TestFloodedLogs(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	noisy, quiet := cloud.Create(t), cloud.Create(t)
	ctx := t.Context()
	flood := "for i in $(seq 10); do curl -s -o /dev/null -H \"X-Access-Token: $T\" -H 'Content-Type: application/connect+json' --data-binary @/tmp/m 'http://127.0.0.1:49983/process.Process/Start?[1-100]' & done; wait"
	token, err := client(t, cloud).API().Sandboxes.Get(ctx, noisy.ID())
	must.Do(t, err)
	message := `{"process":{"cmd":"true","args":["` + strings.Repeat("x", 4000) + `"]}}`
	framed := "\x00\x00" + string([]byte{0, byte(len(message) >> 8), byte(len(message))}) + message
	must.Do(t, noisy.Files.Write(ctx, "/tmp/m", []byte(framed), nil))
	if _, err := noisy.Commands.Run(ctx, flood, &sandbox.CommandParams{Envs: map[string]string{"T": string(token.AccessToken)}}); err != nil {
		t.Fatal(err)
	}
	size := 0
	for e, err := range noisy.Logs(ctx, nil) {
		must.Do(t, err)
		size += len(e.Message)
		for name, value := range e.Fields {
			size += len(name) + len(value)
		}
	}
	if size < 100<<10 || size > 8<<20 {
		t.Errorf("the log has %d bytes, want some, and at most 8 MiB", size)
	}
	if got := sandboxtest.Run(t, noisy, "echo still here"); got != "still here" {
		t.Errorf("it prints %q", got)
	}
	var of []sandbox.LogEntry
	for e, err := range quiet.Logs(ctx, nil) {
		must.Do(t, err)
		of = append(of, e)
	}
	if said(of, "lifecycle", "sandbox created") == nil {
		t.Errorf("the quiet one has %v", of)
	}
}

// TestMetrics checks that the usage of a sandbox is measured from outside, is available at
// once, and belongs to no other sandbox.
func TestMetrics(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	before := time.Now()
	idle, busy := cloud.Create(t), cloud.Create(t)
	if _, err := busy.Commands.Start(t.Context(), "while :; do :; done", nil); err != nil {
		t.Fatal(err)
	}
	first, err := idle.Metrics(t.Context(), nil)
	if err != nil || len(first) == 0 {
		t.Fatalf("got %v, %v at the start, want a sample", first, err)
	}
	m := first[0]
	if m.MemoryUsedBytes <= 0 || m.MemoryTotalBytes < m.MemoryUsedBytes || m.DiskTotalBytes <= 0 || m.DiskUsedBytes > m.DiskTotalBytes {
		t.Errorf("got %+v, want memory and a disk that are used in part", m)
	}
	if m.CPUs < 1 || m.Time.Before(before.Truncate(time.Second)) { // the API may round
		t.Errorf("got %+v, want processors, and a time after %v", m, before)
	}
	var most float64
	patience.Until(t, "the busy one was measured", func() bool {
		all, err := busy.Metrics(t.Context(), nil)
		must.Do(t, err)
		for _, m := range all {
			most = max(most, m.CPUPercent)
		}
		return most > 2 // a machine with other work may have no more for it
	})
	both, err := client(t, cloud).API().Sandboxes.MetricsOf(t.Context(), []string{idle.ID(), busy.ID(), "inobody"})
	if err != nil || len(both) != 2 || both[busy.ID()].Time.IsZero() {
		t.Errorf("got %v, %v of both, want two", both, err)
	}
	must.Do(t, idle.Pause(t.Context(), nil))
	paused, err := idle.Metrics(t.Context(), &sandbox.MetricsParams{From: first[0].Time, Until: time.Now()})
	if err != nil || len(paused) == 0 {
		t.Errorf("got %v, %v of the paused one, want what it used before", paused, err)
	}
	if _, err := idle.Metrics(t.Context(), &sandbox.MetricsParams{From: time.Now(), Until: time.Now().Add(-time.Hour)}); !errors.Is(err, api.ErrInvalidArgument) {
		t.Errorf("from now until before: got %v, want %v", err, api.ErrInvalidArgument)
	}
}
