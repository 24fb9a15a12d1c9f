package sandbox

import (
	"fmt"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// These expressions match the messages with which pip 26.3 reports that it cannot install
// something.
var (
	conflict     = lazyregexp.New(`(?m)^The conflict is caused by:\r?\n((?: +\S.*(?:\n|$))+)`)
	noVersion    = lazyregexp.New(`Could not find a version that satisfies the requirement (.+) \(from versions: (.+)\)`)
	olderPythons = lazyregexp.New(`Ignored the following versions that require a different python version: (.+)`)
	otherPython  = lazyregexp.New(`Packages require a different Python\. (\S+) not in:((?:\r?\n'.*)+)`)
	notBuilt     = lazyregexp.New(`(?m)^ *× (.+) did not run successfully\.`)
	buildOutput  = lazyregexp.New(`(?s)\[\d+ lines? of output\]\r?\n(.*?)\n *\[end of output\]`)
	// missingTool matches messages of distutils, shells, CMake, maturin and compilers about a missing
	// program or file that a build needs.
	missingTool = lazyregexp.New(`(?i)no such file or directory|command not found|cannot find command|is not installed|must be installed|is required to|not found in \$?PATH|could not find`)
	markedOut   = lazyregexp.New(`(?m)^Ignoring (\S+): markers '(.*)' don't match your environment`)
)

const (
	maxPipReason   = 512
	maxPipVersions = 8
)

// pipReason returns the reason for pip's failure. pip explains a conflict in its standard
// output, and everything else in its error output.
func pipReason(stdout, stderr string) string {
	if match := conflict().FindStringSubmatch(stdout); match != nil {
		return clip.Text("the requirements contradict each other: "+joinLines(match[1]), maxPipReason)
	}
	if match := otherPython().FindStringSubmatch(stderr); match != nil {
		return clip.Text(fmt.Sprintf("the sandbox has Python %s, wanted is %s", match[1], joinLines(match[2])), maxPipReason)
	}
	if match := noVersion().FindStringSubmatch(stderr); match != nil {
		text := noVersionReason(clip.Text(match[1], 128), match[2])
		if match := olderPythons().FindStringSubmatch(stderr); match != nil {
			text += "; versions for other Pythons: " + match[1]
		}
		return clip.Text(text, maxPipReason)
	}
	if match := notBuilt().FindStringSubmatch(stderr); match != nil {
		if output := buildOutput().FindStringSubmatch(stderr); output != nil {
			return clip.Text(fmt.Sprintf("%s failed: %s", match[1], buildReason(output[1])), maxPipReason)
		}
	}
	text := clip.LastLine(stderr, maxLastLine)
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "ERROR:") {
			text = clip.Text(strings.TrimSpace(line), maxPipReason)
		}
	}
	return text
}

// noVersionReason returns a reason that names the newest versions. They are the last ones in pip's
// list.
func noVersionReason(requirement, list string) string {
	text := "No matching distribution found for " + requirement
	if list == "none" {
		return text + ": the index has no such package, or none for this Python"
	}
	versions := strings.Split(list, ", ")
	if n := len(versions); n > maxPipVersions {
		return fmt.Sprintf("%s: the newest of %d versions are %s", text, n, strings.Join(versions[n-maxPipVersions:], ", "))
	}
	return text + ": the index has " + list
}

// buildReason returns the line of a build's output that names a missing tool or file. If no line
// names one, it returns the last error, or else the last line.
func buildReason(output string) string {
	var missing, failed, last string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			continue
		case missing == "" && missingTool().MatchString(line):
			missing = line
		case strings.HasPrefix(strings.ToLower(line), "error"):
			failed = line
		}
		last = line
	}
	switch {
	case missing != "":
		return missing + "; what a build needs can be installed first, as root, or in the template"
	case failed != "":
		return failed
	}
	return last
}

// joinLines joins the lines of an indented block to one line.
func joinLines(block string) string {
	var lines []string
	for line := range strings.Lines(block) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// excluded returns the requirements that pip ignored because of their markers.
func excluded(stdout string) []ExcludedRequirement {
	var all []ExcludedRequirement
	for _, match := range markedOut().FindAllStringSubmatch(stdout, -1) {
		all = append(all, ExcludedRequirement{Name: clip.Text(match[1], 128), Marker: clip.Text(match[2], 256)})
	}
	return all
}
