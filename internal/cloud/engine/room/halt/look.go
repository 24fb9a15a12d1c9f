//go:build linux

package halt

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// States of a thread in /proc.
const (
	waiting = 'D' // the thread waits in the kernel, and cannot be interrupted
	stopped = 'T'
	traced  = 't'
	zombie  = 'Z'
	dead    = 'X'
)

// status is the state of a process.
type status struct {
	pid     int
	state   byte // state of the first thread
	parent  int
	threads int
	started uint64 // clock ticks from the machine's boot to the process's start; distinguishes processes with the same pid
}

// look reads the status of a process.
func look(pid int) (status, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return status{}, err
	}
	// The name of the program is in parentheses and may contain any character.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const state, parent, threads, started = 0, 1, 17, 19
	if len(fields) <= started {
		return status{}, fmt.Errorf("process %d has the status %.200q", pid, text)
	}
	s := status{pid: pid, state: fields[state][0]}
	s.parent, _ = strconv.Atoi(fields[parent]) // the kernel's own numbers
	s.threads, _ = strconv.Atoi(fields[threads])
	s.started, _ = strconv.ParseUint(fields[started], 10, 64)
	return s, nil
}

// Parent returns the parent of a process.
func Parent(pid int) (int, error) {
	s, err := look(pid)
	return s.parent, err
}

// ended reports whether no thread of the process can run again. If the first thread of a process
// has ended, other threads of the process may still run.
func (s status) ended() bool { return (s.state == zombie || s.state == dead) && s.threads <= 1 }

// held reports whether all threads of the process are stopped.
func (s status) held() (bool, error) {
	if !still(s.state) {
		return false, nil
	}
	if s.threads <= 1 {
		return true, nil
	}
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.pid))
	if err != nil {
		return false, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // this thread has ended
		}
		rest := bytes.TrimSpace(text[bytes.LastIndexByte(text, ')')+1:])
		if len(rest) > 0 && !still(rest[0]) && rest[0] != waiting {
			return false, nil
		}
	}
	return true, nil
}

func still(state byte) bool {
	return state == stopped || state == traced || state == zombie || state == dead
}
