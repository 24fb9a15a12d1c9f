package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// RequirementError is a requirement, or a line of a [Lock], that is refused
// before anything is sent. It is [api.ErrInvalidArgument].
type RequirementError struct {
	Requirement string
	Reason      string
}

func (e *RequirementError) Error() string {
	return fmt.Sprintf("sandbox: requirement %q: %s", shorten(e.Requirement, 128), e.Reason)
}

// Is matches [api.ErrInvalidArgument].
func (e *RequirementError) Is(target error) bool { return target == api.ErrInvalidArgument }

// requirement is one that was checked.
type requirement struct {
	text    string // for pip; a wheel's path on this machine
	name    string // normalized
	wheel   bool
	renamed *RenamedPackage // nil: taken as it is
}

const maxRequirement = 1024

var (
	// requirementParts are name, extras and versions; the marker is cut off before.
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

func parseRequirements(texts []string) ([]requirement, error) {
	if len(texts) == 0 {
		return nil, &RequirementError{Reason: "there is none"}
	}
	parsed := make([]requirement, len(texts))
	for i, text := range texts {
		var err error
		if parsed[i], err = parseRequirement(text); err != nil {
			return nil, err
		}
	}
	return parsed, nil
}

func namesOf(requirements []requirement) []string {
	names := make([]string, len(requirements))
	for i, r := range requirements {
		names[i] = r.name
	}
	return names
}

// parseRequirement reads a requirement of PEP 508 but for addresses, or the path
// of a wheel. Nothing passes that could be an option of pip.
func parseRequirement(text string) (requirement, error) {
	refuse := func(format string, arguments ...any) (requirement, error) {
		return requirement{}, &RequirementError{text, fmt.Sprintf(format, arguments...)}
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
			return refuse("a pattern of imports: it belongs in Guard.Allow. Name the packages to install")
		}
		return refuse("a pattern of imports: it belongs in Guard.Allow. To install, name the package (%q)", pattern[1])
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
	if module, _, _ := strings.Cut(name, "."); standardModules[module] {
		return refuse("%s is part of Python: nothing to install. Allow its import in Guard.Allow", module)
	}
	r := requirement{text: trimmed, name: normalized(name)}
	if distribution, ok := importNames[name]; ok && extras == "" {
		r.text, r.name = distribution+trimmed[len(name):], normalized(distribution)
		r.renamed = &RenamedPackage{Import: name, Distribution: distribution}
	}
	return r, nil
}

func parseWheel(path string) (requirement, error) {
	match := wheelName().FindStringSubmatch(filepath.Base(path))
	if match == nil {
		return requirement{}, &RequirementError{path, "not the name of a wheel (name-version-python-abi-platform.whl)"}
	}
	if _, err := os.Stat(path); err != nil {
		return requirement{}, &RequirementError{path, "no such wheel on this machine"}
	}
	return requirement{text: path, name: normalized(match[1]), wheel: true}, nil
}

// checkVersionClause gives why one of the versions, such as ">=1.0", is none, or
// "".
func checkVersionClause(clause string) string {
	parts := versionClause().FindStringSubmatch(clause)
	if parts == nil {
		return fmt.Sprintf(`%q is not of the form ==version, with one of == != <= >= < > ~= ===`, shorten(clause, 64))
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
		return fmt.Sprintf("%q is not a version", shorten(version, 64))
	case wild && !exact:
		return fmt.Sprintf("%s takes no wildcard: only == and != do", operator)
	case form[2] != "" && (!exact || wild):
		return fmt.Sprintf("%s takes no local version (what is after the plus sign)", clause)
	case operator == "~=" && form[1] == "":
		return fmt.Sprintf("~=%s needs a second number, as in ~=%[1]s.0", version)
	}
	return ""
}

// normalized is the form in which names of packages are compared.
func normalized(name string) string {
	return strings.ToLower(separator().ReplaceAllString(name, "-"))
}
