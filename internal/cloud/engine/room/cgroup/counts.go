//go:build linux

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Memory is the memory use of a group, in bytes.
type Memory struct {
	Anonymous uint64 // memory of programs
	Kept      uint64 // memory of files that exist only in memory
	Cache     uint64 // page cache, which can be reclaimed
}

// Used returns the memory that cannot be reclaimed.
func (m Memory) Used() uint64 { return m.Anonymous + m.Kept }

// ReadMemory reads an open memory.stat of version 1 or 2.
func ReadMemory(f *os.File) (m Memory, known bool) {
	text := make([]byte, 16<<10) // about fifty short lines
	n, err := readStart(f, text)
	if err != nil {
		return Memory{}, false
	}
	values := map[string]uint64{}
	for line := range strings.Lines(string(text[:n])) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			values[name], _ = strconv.ParseUint(value, 10, 64) // the kernel's own number
		}
	}
	// In version 1 only the totals include the groups below.
	for _, names := range [][3]string{{"total_rss", "total_cache", "total_shmem"}, {"anon", "file", "shmem"}} {
		if own, known := values[names[0]]; known {
			files, kept := values[names[1]], values[names[2]]
			return Memory{Anonymous: own, Kept: kept, Cache: files - min(files, kept)}, true
		}
	}
	return Memory{}, false
}

// CountOOMKills reads, from a group's open file, the number of processes killed for lack of memory.
// It returns 0 if the file cannot be read.
func CountOOMKills(f *os.File) int {
	text := make([]byte, 512) // a few short lines
	n, err := readStart(f, text)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text[:n]) {
		if value, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			kills, _ := strconv.Atoi(string(bytes.TrimSpace(value))) // the kernel's own number
			return kills
		}
	}
	return 0
}

// readStart reads the start of a file of a group. The kernel returns such a file whole, so a second
// call, which ReadAt would need to find its end, is saved: kernels read these files for each cell.
func readStart(f *os.File, text []byte) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(fd uintptr) { n, err = unix.Pread(int(fd), text, 0) })
	return n, errors.Join(controlErr, err)
}

// ProcessorTime returns the processor time that the group has used. It returns false if no group
// counts processor time.
func (s *Group) ProcessorTime() (time.Duration, bool) {
	if s == nil {
		return 0, false
	}
	if s.CPU.Dir != "" && s.CPU.Version == 1 {
		n, err := ReadNumber(filepath.Join(s.CPU.Dir, "cpuacct.usage")) // for machines where both are one hierarchy
		return time.Duration(n), err == nil
	}
	for _, h := range s.Dirs {
		if h.Version == 1 {
			continue
		}
		text, err := os.ReadFile(filepath.Join(h.Dir, "cpu.stat"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
				n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
				return time.Duration(n) * time.Microsecond, err == nil
			}
		}
	}
	return 0, false
}

// ReadNumber reads a kernel file that contains one number.
func ReadNumber(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return n, nil
}
