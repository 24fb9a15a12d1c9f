//go:build linux

package main

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestSettle checks how long the start of the rows waits for a cloud that works.
func TestSettle(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, tt := range []struct {
		name         string
		quiet, works time.Duration
		err          error
		took         time.Duration
		notice       string
	}{
		{name: "quiet from the start", quiet: time.Second, took: time.Second},
		{name: "quiet later", quiet: time.Second, works: 3500 * time.Millisecond, took: 5 * time.Second},
		{name: "never quiet", quiet: time.Second, works: time.Hour, took: settleTime + time.Second, notice: "still works 2m0s"},
		{name: "no wait", works: time.Hour},
		{name: "unknown", quiet: time.Second, err: broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var notices strings.Builder
				err := settle(t.Context(), &notices, tt.quiet, func() (time.Duration, error) { return min(time.Since(begin), tt.works), tt.err })
				if took := time.Since(begin); !errors.Is(err, tt.err) || took != tt.took || !strings.Contains(notices.String(), tt.notice) || (tt.notice == "") != (notices.String() == "") {
					t.Errorf("got %v after %v with the notices %q, want %+v", err, took, notices.String(), tt)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := settle(ctx, nil, time.Hour, processorTime); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
	before, err := processorTime()
	must.Do(t, err)
	program := exec.CommandContext(t.Context(), "/bin/sh", "-c", "while :; do :; done")
	must.Do(t, program.Start())
	patience.Until(t, "the time of a program that works", func() bool {
		now, err := processorTime()
		must.Do(t, err)
		return now > before+100*time.Millisecond
	})
	must.Do(t, program.Process.Kill())
	_ = program.Wait() // its status is the signal
	for _, stat := range []string{"", "1 (a) S 1", "1 (a) b) S 1 2 3 4 5 6 7 8 9 10 x 0 0 0"} {
		if _, err := statTime([]byte(stat)); err == nil {
			t.Errorf("%q has a time", stat)
		}
	}
}
