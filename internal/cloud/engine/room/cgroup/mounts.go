//go:build linux

package cgroup

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type mount struct {
	point       string // mount point
	own         string // path of this process's group
	version     int
	controllers []string // the controllers of the hierarchy, if its version is 1
}

// mounts reads the mount point of each hierarchy, and the path of this process's group in it.
func mounts() ([]mount, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	return parseMounts(info, own), nil
}

func parseMounts(mountinfo, own []byte) []mount {
	paths := make(map[string]string) // by controllers, in the kernel's spelling
	for line := range bytes.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(string(line)), ":", 3)
		if len(parts) == 3 {
			paths[parts[1]] = parts[2]
		}
	}
	var mounts []mount
	for line := range bytes.Lines(mountinfo) {
		before, after, ok := strings.Cut(strings.TrimSpace(string(line)), " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(super) < 3 {
			continue
		}
		m := mount{point: fields[4], version: 1}
		path, found := "", false
		switch super[0] {
		case "cgroup2":
			m.version = 2
			path, found = paths[""], true
		case "cgroup":
			options := strings.Split(super[2], ",")
			for controllers, p := range paths {
				names := strings.Split(controllers, ",")
				if controllers != "" && !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(options, n) }) {
					m.controllers, path, found = names, p, true
				}
			}
		}
		if !found {
			continue
		}
		// In a container the mount shows only a part of the hierarchy, from
		// fields[3] down.
		rel, err := filepath.Rel(fields[3], path)
		if err != nil || strings.HasPrefix(rel, "..") {
			rel = "."
		}
		m.own = filepath.Join(m.point, rel)
		mounts = append(mounts, m)
	}
	return mounts
}
