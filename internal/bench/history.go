//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/sandbox/local"
)

// environment describes a run. Results are compared only with those of the same kind of machine.
type environment struct {
	Time   time.Time `json:"time"`
	Commit string    `json:"commit"`
	// Machine is the kind of machine: processors and isolation. The kernel is not part of it.
	Machine string  `json:"machine"`
	Kernel  string  `json:"kernel"`
	Load    float64 `json:"load"` // processes that were running or waiting to run, in the minute before the run
}

// record is one line of a file of results.
type record struct {
	environment
	Row string `json:"row"`
	// Value and Floor have the unit Unit, "ns" or "bytes". Floor is 0 if the row has no floor.
	Unit      string  `json:"unit"`
	Value     float64 `json:"value"`
	Floor     float64 `json:"floor,omitempty"`
	FloorName string  `json:"floor_name,omitempty"`
	// Parts and FloorParts are the values of the row and of its floor in the parts of the measurement.
	Parts      []float64 `json:"parts"`
	FloorParts []float64 `json:"floor_parts,omitempty"`
	// Took is the time that the measurement took, in seconds.
	Took float64 `json:"took"`
}

// bytesUnit is the unit of rows about memory or sizes.
const bytesUnit = "bytes"

func newEnvironment(commit string, isolation local.Isolation) environment {
	e := environment{Time: time.Now().UTC().Round(time.Second), Commit: commit}
	var system unix.Utsname
	if unix.Uname(&system) == nil {
		e.Kernel, _, _ = strings.Cut(unix.ByteSliceToString(system.Release[:]), "-")
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		e.Load = float64(info.Loads[0]) / (1 << 16)
	}
	e.Machine = fmt.Sprintf("%s, %d CPUs, %s, isolation %s", runtime.GOARCH, runtime.NumCPU(), processor(), isolation)
	return e
}

// processor returns the name of the processors.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(info)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// record writes results into a new file of a directory, which it makes if it does not exist.
func (e environment) record(dir string, results []outcome) error {
	if len(results) == 0 {
		return nil
	}
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false)
	for _, m := range results {
		r := record{environment: e, Row: m.row.name, Unit: "ns", Value: m.got.value(), Parts: m.parts, Took: m.took.Round(time.Millisecond).Seconds()}
		if m.got.size > 0 {
			r.Unit = bytesUnit
		}
		if m.row.floor != nil {
			r.Floor, r.FloorName, r.FloorParts = m.bare.value(), m.row.floorName, m.floors
		}
		if err := encoder.Encode(r); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, e.Time.Format("20060102T150405Z")+".jsonl"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(lines.Bytes())
	return errors.Join(err, file.Close())
}

// readHistory returns the results of all files of a directory, sorted by the time of their run.
func readHistory(dir string) ([]record, error) {
	paths, err := fs.Glob(os.DirFS(dir), "*.jsonl")
	if err != nil {
		return nil, err
	}
	var records []record
	for _, name := range paths {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		number := 0
		for line := range bytes.Lines(content) {
			number++
			var r record
			if err := json.Unmarshal(line, &r); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", filepath.Join(dir, name), number, err)
			}
			if r.Row == "" || r.Value <= 0 || r.Floor < 0 {
				return nil, fmt.Errorf("%s:%d: no name of a row, or no value above 0", filepath.Join(dir, name), number)
			}
			records = append(records, r)
		}
	}
	slices.SortStableFunc(records, func(a, b record) int { return a.Time.Compare(b.Time) })
	return records, nil
}
