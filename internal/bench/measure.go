package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// median runs once, uncounted, to warm up, and then as often as asked. timed
// returns what counts of one run.
func median(ctx context.Context, runs int, timed func(context.Context) (time.Duration, error)) (time.Duration, error) {
	if _, err := timed(ctx); err != nil {
		return 0, err
	}
	took := make([]time.Duration, runs)
	for i := range took {
		var err error
		if took[i], err = timed(ctx); err != nil {
			return 0, err
		}
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// whole counts all of a call.
func whole(call func(context.Context) error) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		start := time.Now()
		err := call(ctx)
		return time.Since(start), err
	}
}

func format(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", float64(d)/float64(time.Microsecond))
	case d < time.Second:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// resetPeak makes peak count from now.
func resetPeak() error { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// peak returns the most memory that this process had resident, in bytes.
func peak() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, found := bytes.Cut(status, []byte("VmHWM:"))
	fields := bytes.Fields(rest)
	if !found || len(fields) == 0 {
		return 0, fmt.Errorf("/proc/self/status has no VmHWM")
	}
	kilobytes, err := strconv.ParseInt(string(fields[0]), 10, 64)
	return kilobytes << 10, err
}
