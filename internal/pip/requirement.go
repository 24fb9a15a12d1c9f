package pip

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// RefusedError reports that a requirement, or a line of a lock, is not accepted.
type RefusedError struct {
	Requirement string
	Reason      string
	Import      bool // the requirement is the name of a module to import, and not of a package
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("requirement %q: %s", clip.Text(e.Requirement, 128), e.Reason)
}

// Requirement is a requirement that was checked.
type Requirement struct {
	Text  string // the text for pip; for a wheel its path on this machine
	Name  string // the name of the package, normalized
	Wheel bool
	// Import is the requested name, if it is the name of a module and not of a package ("PIL").
	// Distribution is then the package that contains the module ("pillow").
	Import, Distribution string
}

const maxRequirement = 1024

var (
	// requirementParts matches the name, the extras and the versions of a requirement without its
	// marker.
	requirementParts = lazyregexp.New(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)` +
		` *(\[ *(?:[A-Za-z0-9._-]+(?: *, *[A-Za-z0-9._-]+)*)? *\])?` +
		` *(?:\( *([^()]+?) *\)|([^()]*))$`)
	versionClause = lazyregexp.New(`^(===|==|~=|!=|<=|>=|<|>) *([A-Za-z0-9_.*+!-]+)$`)
	versionForm   = lazyregexp.New(`(?i)^v?(?:\d+!)?\d+(\.\d+)*(?:[-_.]?(?:alpha|a|beta|b|preview|pre|c|rc)[-_.]?\d*)?` +
		`(?:-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*)?(?:[-_.]?dev[-_.]?\d*)?(\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?$`)
	importPattern = lazyregexp.New(`^(?:([\pL_][\pL\pN_]*)(?:\.[\pL_][\pL\pN_]*)*\.)?\*$`)
	wheelName     = lazyregexp.New(`^([A-Za-z0-9_.]+)-([A-Za-z0-9_.+!]+)(?:-[A-Za-z0-9_.+!]+){3,4}\.whl$`)
	separator     = lazyregexp.New(`[-_.]+`)
)

// ParseAll reads requirements as [Parse] does. An empty list is refused.
func ParseAll(texts []string) ([]Requirement, error) {
	if len(texts) == 0 {
		return nil, &RefusedError{Reason: "no requirement was named"}
	}
	parsed := make([]Requirement, len(texts))
	for i, text := range texts {
		var err error
		if parsed[i], err = Parse(text); err != nil {
			return nil, err
		}
	}
	return parsed, nil
}

// Names returns the normalized names of requirements.
func Names(requirements []Requirement) []string {
	names := make([]string, len(requirements))
	for i, r := range requirements {
		names[i] = r.Name
	}
	return names
}

// Parse reads the path of a wheel, or a requirement of PEP 508 that contains no address. It refuses
// any text that pip could read as an option. The error is a [*RefusedError].
func Parse(text string) (Requirement, error) {
	refuse := func(format string, arguments ...any) (Requirement, error) {
		return Requirement{}, &RefusedError{Requirement: text, Reason: fmt.Sprintf(format, arguments...)}
	}
	refuseImport := func(format string, arguments ...any) (Requirement, error) {
		return Requirement{}, &RefusedError{text, fmt.Sprintf(format, arguments...), true}
	}
	trimmed := strings.Trim(text, " ")
	switch {
	case len(text) > maxRequirement:
		return refuse("longer than %d bytes", maxRequirement)
	case strings.HasSuffix(text, ".whl") && !strings.Contains(text, "://"):
		return parseWheel(text)
	case strings.HasPrefix(trimmed, "-"):
		return refuse("options of pip are not allowed here")
	case strings.Contains(text, "://") || strings.Contains(text, "@"):
		return refuse("addresses are not allowed here: give a name, or the path of a wheel")
	}
	if pattern := importPattern().FindStringSubmatch(trimmed); pattern != nil {
		if pattern[1] == "" {
			return refuseImport("a pattern of imports, not a package: name the packages to install")
		}
		return refuseImport("a pattern of imports, not a package: to install, name the package (%q)", pattern[1])
	}
	head, marker, marked := strings.Cut(trimmed, ";")
	parts := requirementParts().FindStringSubmatch(strings.TrimRight(head, " "))
	if parts == nil {
		return refuse(`not of the form name[extras]==version ("humanize==4.*")`)
	}
	name, extras, versions := parts[1], parts[2], parts[3]+parts[4]
	if versions != "" {
		for clause := range strings.SplitSeq(versions, ",") {
			if reason := checkVersionClause(strings.Trim(clause, " ")); reason != "" {
				return refuse("%s", reason)
			}
		}
	}
	if marked {
		if reason := checkMarker(marker); reason != "" {
			return refuse("after the semicolon: %s", reason)
		}
	}
	if module, _, _ := strings.Cut(name, "."); standardModules()[module] {
		return refuseImport("%s is part of Python: there is nothing to install", module)
	}
	r := Requirement{Text: trimmed, Name: Normalize(name)}
	if distribution, ok := importNames()[name]; ok && extras == "" {
		r.Text, r.Name = distribution+trimmed[len(name):], Normalize(distribution)
		r.Import, r.Distribution = name, distribution
	}
	return r, nil
}

func parseWheel(path string) (Requirement, error) {
	match := wheelName().FindStringSubmatch(filepath.Base(path))
	if match == nil {
		return Requirement{}, &RefusedError{Requirement: path, Reason: "not the name of a wheel (name-version-python-abi-platform.whl)"}
	}
	if _, err := os.Stat(path); err != nil {
		return Requirement{}, &RefusedError{Requirement: path, Reason: "no such wheel on this machine"}
	}
	return Requirement{Text: path, Name: Normalize(match[1]), Wheel: true}, nil
}

// checkVersionClause returns "" if a clause has a form like ">=1.0". Otherwise it returns the
// reason why the clause does not have this form.
func checkVersionClause(clause string) string {
	parts := versionClause().FindStringSubmatch(clause)
	if parts == nil {
		return fmt.Sprintf(`%q is not of the form ==version, with one of == != <= >= < > ~= ===`, clip.Text(clause, 64))
	}
	operator, version := parts[1], parts[2]
	if operator == "===" {
		return ""
	}
	base, wild := strings.CutSuffix(version, ".*")
	form := versionForm().FindStringSubmatch(base)
	exact := operator == "==" || operator == "!="
	switch {
	case form == nil:
		return fmt.Sprintf("%q is not a version", clip.Text(version, 64))
	case wild && !exact:
		return fmt.Sprintf("%s does not take a wildcard: only == and != do", operator)
	case form[2] != "" && (!exact || wild):
		return fmt.Sprintf("%s does not take a local version (the part after the plus sign)", clause)
	case operator == "~=" && form[1] == "":
		return fmt.Sprintf("~=%s needs a second number, as in ~=%[1]s.0", version)
	}
	return ""
}

// Normalize returns the form of a package name that is used in comparisons.
func Normalize(name string) string {
	return strings.ToLower(separator().ReplaceAllString(name, "-"))
}
