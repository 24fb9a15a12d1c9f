//go:build linux

package inside

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// runOn makes this thread, and every program that it executes, run on the given processors only; an
// empty list means all processors. If the kernel refuses, it returns a note.
func runOn(processors []int) (notes []string) {
	if len(processors) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, cpu := range processors {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return []string{fmt.Sprintf("programs count all processors of the machine: %v", err)}
	}
	return nil
}

// showProcessors replaces the file in /proc from which programs count processors, so that it shows
// only the given processors. The processors keep their numbers, because programs can also get the
// number of their current processor from the kernel.
func showProcessors(processors []int) error {
	const name = "cpuinfo"
	all, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err
	}
	if err := os.WriteFile(name, onlyProcessors(all, processors), 0o444); err != nil {
		return err
	}
	return showInProc(name)
}

// writeSys makes the files in /sys from which programs count processors. The sandbox has no other
// files in /sys.
func writeSys(processors []int) error {
	const sys = "/sys/devices/system/cpu"
	for _, cpu := range processors {
		if err := os.MkdirAll(filepath.Join("root"+sys, "cpu"+strconv.Itoa(cpu)), 0o555); err != nil {
			return err
		}
	}
	list := processorList(processors)
	files := map[string][]byte{"online": list, "present": list}
	// From this file, programs make tables with a place for every number.
	possible, err := os.ReadFile(sys + "/possible")
	switch {
	case err == nil:
		files["possible"] = possible
	case !errors.Is(err, fs.ErrNotExist): // the server may run without /sys
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join("root"+sys, name), text, 0o444); err != nil {
			return err
		}
	}
	return nil
}

// processorList returns the text of a file in /sys that lists processors.
func processorList(processors []int) []byte {
	numbers := make([]string, len(processors))
	for i, cpu := range processors {
		numbers[i] = strconv.Itoa(cpu)
	}
	return []byte(strings.Join(numbers, ",") + "\n")
}

// onlyProcessors returns the paragraphs of cpuinfo about the given processors, and the paragraphs
// that are not about a processor.
func onlyProcessors(cpuinfo []byte, processors []int) (text []byte) {
	for paragraph := range bytes.SplitAfterSeq(cpuinfo, []byte("\n\n")) {
		name, rest, _ := bytes.Cut(paragraph, []byte(":"))
		number, _, _ := bytes.Cut(rest, []byte("\n"))
		cpu, err := strconv.Atoi(string(bytes.TrimSpace(number)))
		if err != nil || string(bytes.TrimSpace(name)) != "processor" || slices.Contains(processors, cpu) {
			text = append(text, paragraph...)
		}
	}
	return text
}
