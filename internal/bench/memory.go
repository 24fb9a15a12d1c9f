//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// resetPeak resets the result of peak("self") to the present memory.
func resetPeak() error {
	debug.FreeOSMemory()
	return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}

// peak returns the largest resident memory that a process has had, in bytes.
func peak(pid string) (int64, error) { return procField(pid, "status", "VmHWM") }

// usage returns two sizes of a process's memory in bytes. own is the memory that only the process
// uses. share also includes shared pages, each divided by the number of processes that share it. If
// the user of this program may not read these values, both results are the size of the pages that do
// not belong to a file.
func usage(pid string) (own, share int64, err error) {
	share, err = procField(pid, "smaps_rollup", "Pss")
	if errors.Is(err, fs.ErrPermission) {
		own, err = procField(pid, "status", "RssAnon")
		return own, own, err
	}
	for _, name := range []string{"Private_Clean", "Private_Dirty"} {
		n, readErr := procField(pid, "smaps_rollup", name)
		own, err = own+n, errors.Join(err, readErr)
	}
	return own, share, err
}

// procField reads a number of kB from a file in /proc and returns it in bytes.
func procField(pid, file, name string) (int64, error) {
	path := filepath.Join("/proc", pid, file)
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	_, rest, found := bytes.Cut(content, []byte("\n"+name+":"))
	fields := bytes.Fields(rest)
	if !found || len(fields) == 0 {
		return 0, fmt.Errorf("%s has no %s", path, name)
	}
	kilobytes, err := strconv.ParseInt(string(fields[0]), 10, 64)
	return kilobytes << 10, err
}

// family returns the ids of processes. all contains the processes that this process started,
// directly or through other processes. daemons contains those of them that are the first process of
// a sandbox: pid 1 in a namespace of the room engine.
func family() (all, daemons []string, err error) {
	statuses, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return nil, nil, err
	}
	parents, first := map[string]string{}, map[string]bool{}
	for _, path := range statuses {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid := filepath.Base(filepath.Dir(path))
		for line := range strings.Lines(string(content)) {
			fields := strings.Fields(line)
			switch {
			case len(fields) == 2 && fields[0] == "PPid:":
				parents[pid] = fields[1]
			case len(fields) == 4 && fields[0] == "NSpid:":
				first[pid] = fields[3] == "1"
			}
		}
	}
	self := strconv.Itoa(os.Getpid())
	for pid := range parents {
		above := parents[pid]
		for above != self && above != "" {
			above = parents[above]
		}
		if above == self {
			all = append(all, pid)
			if first[pid] {
				daemons = append(daemons, pid)
			}
		}
	}
	return all, daemons, nil
}

// envdPeak returns the largest resident memory that the first process of any
// sandbox has had.
func envdPeak() (most int64, err error) {
	_, daemons, err := family()
	for _, pid := range daemons {
		n, readErr := peak(pid)
		most, err = max(most, n), errors.Join(err, readErr)
	}
	return most, err
}

// inAll returns the memory that this process and all processes that it started use together, in
// bytes.
func inAll() (sum int64, err error) {
	all, _, err := family()
	if err != nil {
		return 0, err
	}
	for _, pid := range slices.Concat(all, []string{"self"}) {
		_, share, err := usage(pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return 0, err
		}
		sum += share
	}
	return sum, nil
}
