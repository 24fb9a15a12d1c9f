package pyenv

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// list is a pinned list of packages with hashes, for all Python versions.
type list string

// short is the default list. full is the list of the service's template.
var (
	//go:embed requirements.txt
	short list
	//go:embed full.txt
	full list
)

// FullList returns the list of the full environment, as a requirements.txt for all Python
// versions.
func FullList() string { return string(full) }

var covered = lazyregexp.New(`(?m)^# Python 3\.(\d+) to 3\.(\d+);`)

// minors returns the first and the last minor version of Python 3 for which the list has files.
func (l list) minors() (first, last int) {
	match := covered().FindStringSubmatch(string(l))
	if match == nil {
		panic("python: a list of packages does not say which versions it covers")
	}
	first, _ = strconv.Atoi(match[1])
	last, _ = strconv.Atoi(match[2])
	return first, last
}

// digest returns the hash of text, shortened so that it can be part of a directory's name.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

// venvName returns the name of the environment for packages and an interpreter. The name depends on
// the packages, on the version of Python and on the interpreter.
func venvName(c choice, base *interpreter) string {
	return fmt.Sprintf("%s-%d.%d-%s", c.digest(), base.Numbers[0], base.Numbers[1], digest(base.Base+" "+base.version()))
}

var pinned = lazyregexp.New(`(?m)^[\w.-]+==[^\s;]+(?: ; (.*?))?(?: \\)?$`)

// pins returns the packages of the list for a minor version of Python 3. Each pin has a line
// with the version, and lines with the hashes of the package's files.
func (l list) pins(minor int) (pins []string) {
	applied := false
	for line := range strings.Lines(string(l)) {
		match := pinned().FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		switch {
		case match != nil:
			if applied = applies(match[1], minor); applied {
				pins = append(pins, line)
			}
		case applied:
			pins[len(pins)-1] += line
		}
	}
	return pins
}

var condition = lazyregexp.New(`python_version (==|<=|>=) "3\.(\d+)"`)

// applies evaluates a marker. It supports only the forms that occur in the list.
func applies(marker string, minor int) bool {
	for _, match := range condition().FindAllStringSubmatch(marker, -1) {
		bound, _ := strconv.Atoi(match[2])
		switch {
		case match[1] == "==" && minor != bound, match[1] == "<=" && minor > bound, match[1] == ">=" && minor < bound:
			return false
		}
	}
	return true
}
