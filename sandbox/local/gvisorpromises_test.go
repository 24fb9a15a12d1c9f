//go:build linux

package local_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// gvisorTries returns the tries of any engine, except for two limits that a process of gVisor cannot
// measure itself: it reads processor time from gVisor's own clock, and a program that reaches the
// process limit may end the sandbox. These two limits are read from the machine's control groups.
func (w *promised) gvisorTries() map[string]func(*testing.T) (bool, error) {
	tries := maps.Clone(w.tries())
	for feature, files := range map[string][2]string{
		"processor limit": {"cpu.cfs_quota_us", "cpu.max"},
		"process limit":   {"pids.max", "pids.max"},
	} {
		tries[feature] = func(t *testing.T) (bool, error) {
			if w.missing(feature) != "" {
				return false, errUntried
			}
			w.small.Create(t)
			want := map[string]string{"processor limit": "30000", "process limit": strconv.Itoa(64*4 + 128 + 128)}[feature]
			return slices.ContainsFunc(sentries(t, os.Getpid()), func(pid int) bool { return limitOf(t, pid, files) == want }), nil
		}
	}
	tries["resize of a running sandbox"] = func(t *testing.T) (bool, error) {
		if err := w.cloud.Create(t).Resize(t.Context(), sandbox.Resources{CPUs: 0.4}); err != nil {
			return false, err
		}
		return slices.ContainsFunc(sentries(t, os.Getpid()), func(pid int) bool {
			return limitOf(t, pid, [2]string{"cpu.cfs_quota_us", "cpu.max"}) == "40000"
		}), nil
	}
	return tries
}

// limitOf returns the limit in a file of a control group of a process. names are the names of this file
// in versions 1 and 2 of control groups.
func limitOf(t *testing.T, pid int, names [2]string) string {
	t.Helper()
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "" // it has ended
	}
	for line := range strings.Lines(string(groups)) {
		group := strings.TrimSpace(line[strings.LastIndexByte(line, ':')+1:])
		for _, pattern := range []string{"/sys/fs/cgroup/*" + group + "/" + names[0], "/sys/fs/cgroup" + group + "/" + names[1]} {
			files, err := filepath.Glob(pattern)
			must.Do(t, err)
			for _, file := range files {
				if text, err := os.ReadFile(file); err == nil {
					limit, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
					return limit
				}
			}
		}
	}
	return ""
}
