//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// settleTime bounds the wait for a quiet cloud. The cloud itself gives up loading after this time.
const settleTime = 2 * time.Minute

// settle waits until the cloud has made everything that it makes ahead: its warm sandboxes, and the
// process with pandas that kernels are forked from, which loads for seconds after the cloud has
// started. Nothing announces the last of these, but all of them take processor time. So settle waits
// until work, the time of the processors so far, has hardly grown for the given time. If it still
// grows after settleTime, settle returns with a notice.
func settle(ctx context.Context, notices io.Writer, quiet time.Duration, work func() (time.Duration, error)) error {
	if quiet == 0 {
		return nil
	}
	before, err := work()
	for begin := time.Now(); err == nil; {
		if time.Since(begin) > settleTime {
			fmt.Fprintf(notices, "bench: the cloud still works %v after its start\n", settleTime)
			return nil
		}
		select {
		case <-time.After(quiet):
		case <-ctx.Done():
			return ctx.Err()
		}
		var now time.Duration
		if now, err = work(); err == nil && (now-before).Abs() < quiet/20 {
			return nil
		}
		before = now
	}
	return err
}

// processorTime returns the time that this process and all processes that it started have had of the
// processors.
func processorTime() (sum time.Duration, err error) {
	all, _, err := family()
	if err != nil {
		return 0, err
	}
	for _, pid := range slices.Concat(all, []string{"self"}) {
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return 0, err
		}
		one, err := statTime(stat)
		if err != nil {
			return 0, fmt.Errorf("/proc/%s/stat: %w", pid, err)
		}
		sum += one
	}
	return sum, nil
}

// statTime returns the processor time in the content of a file stat in /proc, with the time of the
// children that have ended.
func statTime(stat []byte) (sum time.Duration, err error) {
	_, rest, _ := bytes.Cut(stat, []byte(") ")) // the name before it may contain spaces
	const first, last = 11, 14                  // the four times, in hundredths of a second
	fields := bytes.Fields(rest)
	if len(fields) <= last {
		return 0, fmt.Errorf("%q has too few fields", stat)
	}
	for _, field := range fields[first : last+1] {
		ticks, err := strconv.Atoi(string(field))
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ticks) * (time.Second / 100)
	}
	return sum, nil
}
