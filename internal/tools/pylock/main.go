// Command pylock writes a hashed pip requirements file that fits several
// versions of Python and several kinds of Linux at once.
//
//	pylock -in requirements.in -out requirements.txt 3.9=python3.9 … 3.14=python3.13
//
// Each argument names a Python version and an interpreter whose pip resolves
// for it. pip evaluates environment markers with the interpreter it runs on, so
// each should be of the version it stands for; the newest may stand in for one
// that is not there yet. Markers in the input are evaluated here, for the version
// itself; they can compare python_version and nothing else.
//
// pip does all the talking to the package index, with whatever settings it has.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// platforms are the platforms whose wheels a sandbox may need: programs for glibc 2.28 run on
// everything newer. Not all of the packages have wheels for musl.
var platforms = [][]string{glibc("x86_64"), glibc("aarch64")}

func glibc(arch string) []string {
	var tags []string
	for minor := 28; minor >= 17; minor-- {
		tags = append(tags, fmt.Sprintf("manylinux_2_%d_%s", minor, arch))
	}
	return append(tags, "manylinux2014_"+arch, "linux_"+arch)
}

// pin is a package in one version.
type pin struct{ name, version string }

// lock collects, for each pin, the minor versions of Python 3 that use it and
// the hashes of its files.
type lock map[pin]*entry

type entry struct {
	minors map[int]bool
	hashes map[string]bool
}

func main() {
	in := flag.String("in", "", "file with the wanted packages, one a line")
	out := flag.String("out", "", "file to write")
	flag.Parse()
	if err := run(context.Background(), *in, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "pylock:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, in, out string, pythons []string) error {
	wanted, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	pins, minors := lock{}, []int{}
	for _, argument := range pythons {
		version, python, found := strings.Cut(argument, "=")
		minor, err := strconv.Atoi(strings.TrimPrefix(version, "3."))
		if !found || err != nil {
			return fmt.Errorf("%q is not of the form 3.11=python3.11", argument)
		}
		minors = append(minors, minor)
		for _, tags := range platforms {
			fmt.Fprintf(os.Stderr, "resolving for Python 3.%d on %s\n", minor, tags[0])
			if err := pins.resolve(ctx, string(wanted), python, minor, tags); err != nil {
				return fmt.Errorf("resolve for Python 3.%d on %s with %s: %w", minor, tags[0], python, err)
			}
		}
	}
	slices.Sort(minors)
	return os.WriteFile(out, pins.format(string(wanted), minors), 0o644)
}

var condition = regexp.MustCompile(`^python_version (==|<=|>=) "3\.(\d+)"$`)

// wantedBy returns the lines of the input for a minor version of Python 3, without their markers.
func wantedBy(wanted string, minor int) (string, error) {
	var lines []string
	for line := range strings.Lines(wanted) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		requirement, marker, marked := strings.Cut(strings.TrimSpace(line), " ; ")
		applies := true
		for part := range strings.SplitSeq(marker, " and ") {
			if !marked {
				break
			}
			match := condition.FindStringSubmatch(part)
			if match == nil {
				return "", fmt.Errorf("%q: a marker is python_version ==, <= or >= a version, such as python_version >= \"3.11\"", part)
			}
			bound, err := strconv.Atoi(match[2])
			if err != nil {
				return "", err
			}
			switch match[1] {
			case "==":
				applies = applies && minor == bound
			case "<=":
				applies = applies && minor <= bound
			case ">=":
				applies = applies && minor >= bound
			}
		}
		if applies {
			lines = append(lines, requirement+"\n")
		}
	}
	return strings.Join(lines, ""), nil
}

// resolve adds the packages that pip would install, without installing them.
func (l lock) resolve(ctx context.Context, wanted, python string, minor int, tags []string) error {
	directory, err := os.MkdirTemp("", "pylock-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	wanted, err = wantedBy(wanted, minor)
	if err != nil {
		return err
	}
	in, report := filepath.Join(directory, "requirements.in"), filepath.Join(directory, "report.json")
	if err := os.WriteFile(in, []byte(wanted), 0o644); err != nil {
		return err
	}
	args := []string{
		"-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", report,
		"--target", filepath.Join(directory, "target"), "--only-binary=:all:",
		"--implementation", "cp", "--python-version", fmt.Sprintf("3.%d", minor), "-r", in,
	}
	for _, tag := range tags {
		args = append(args, "--platform", tag)
	}
	command := exec.CommandContext(ctx, python, args...)
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		return err
	}
	content, err := os.ReadFile(report)
	if err != nil {
		return err
	}
	var resolved struct {
		Install []struct {
			Metadata struct{ Name, Version string }
			Download struct {
				Archive struct {
					Hashes struct{ SHA256 string }
				} `json:"archive_info"`
			} `json:"download_info"`
		}
	}
	if err := json.Unmarshal(content, &resolved); err != nil {
		return err
	}
	for _, found := range resolved.Install {
		if found.Download.Archive.Hashes.SHA256 == "" {
			return fmt.Errorf("%s: the index gives no SHA-256", found.Metadata.Name)
		}
		key := pin{strings.ToLower(found.Metadata.Name), found.Metadata.Version}
		for other, entry := range l {
			if other.name == key.name && other.version != key.version && entry.minors[minor] {
				return fmt.Errorf("%s is %s here and %s on another platform; pin it in the input", key.name, key.version, other.version)
			}
		}
		if l[key] == nil {
			l[key] = &entry{minors: map[int]bool{}, hashes: map[string]bool{}}
		}
		l[key].minors[minor] = true
		l[key].hashes[found.Download.Archive.Hashes.SHA256] = true
	}
	if len(resolved.Install) == 0 {
		return errors.New("pip reports nothing to install")
	}
	return nil
}

// format writes the lines sorted by name, each with a marker for its versions of Python. Versions are
// contiguous: an index only moves forward.
func (l lock) format(wanted string, minors []int) []byte {
	var text bytes.Buffer
	text.WriteString("# Written by pylock (internal/tools); do not edit. Wanted:\n")
	for lines := bufio.NewScanner(strings.NewReader(wanted)); lines.Scan(); {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
			fmt.Fprintf(&text, "#   %s\n", line)
		}
	}
	fmt.Fprintf(&text, "# Python 3.%d to 3.%d; Linux on x86_64 and aarch64 with glibc 2.28 or newer.\n",
		minors[0], minors[len(minors)-1])
	keys := slices.SortedFunc(maps.Keys(l), func(a, b pin) int {
		if order := strings.Compare(a.name, b.name); order != 0 {
			return order
		}
		return slices.Min(slices.Collect(maps.Keys(l[a].minors))) - slices.Min(slices.Collect(maps.Keys(l[b].minors)))
	})
	for _, key := range keys {
		used := slices.Sorted(maps.Keys(l[key].minors))
		fmt.Fprintf(&text, "%s==%s", key.name, key.version)
		switch first, last := used[0], used[len(used)-1]; {
		case len(used) == len(minors):
		case first == last:
			fmt.Fprintf(&text, " ; python_version == \"3.%d\"", first)
		case first == minors[0]:
			fmt.Fprintf(&text, " ; python_version <= \"3.%d\"", last)
		case last == minors[len(minors)-1]:
			fmt.Fprintf(&text, " ; python_version >= \"3.%d\"", first)
		default:
			fmt.Fprintf(&text, " ; python_version >= \"3.%d\" and python_version <= \"3.%d\"", first, last)
		}
		for _, hash := range slices.Sorted(maps.Keys(l[key].hashes)) {
			fmt.Fprintf(&text, " \\\n    --hash=sha256:%s", hash)
		}
		text.WriteByte('\n')
	}
	return text.Bytes()
}
