package packaging

import (
	"fmt"
	"regexp"
	"strings"
)

// heading matches the heading of a version in CHANGELOG.md, such as "## v0.1.0" with text behind it.
var heading = regexp.MustCompile(`(?m)^## (\S+).*\n`)

// Notes returns the notes of a release: the section of its version in CHANGELOG.md. A commit without a
// tag has the section Unreleased. A tag without a section is an error.
func Notes(b *Build, changelog []byte) ([]byte, error) {
	want := "v" + b.Release()
	if b.Release() == "0.0.0" || pseudoVersion.MatchString(b.Release()) {
		want = "Unreleased"
	}
	found := heading.FindAllSubmatchIndex(changelog, -1)
	for i, at := range found {
		if string(changelog[at[2]:at[3]]) != want {
			continue
		}
		end := len(changelog)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		return []byte(strings.TrimSpace(string(changelog[at[1]:end])) + "\n"), nil
	}
	return nil, fmt.Errorf("packaging: CHANGELOG.md has no section %q", "## "+want)
}
