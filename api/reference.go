package api

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// maxReference limits the length of a reference. The names of a team, a template and a tag are
// much shorter.
const maxReference = 512

// referencePath returns the path of a template's route. A reference is an id or a name. A name may
// have a namespace before it and a tag behind it.
func referencePath(collection, what, reference, route string) (string, error) {
	if !isReference(reference) {
		return "", fmt.Errorf("api: %q is not the id or name of a %s: %w", clip.Line(reference, 64), what, ErrInvalidArgument)
	}
	return collection + url.PathEscape(reference) + route, nil
}

// isReference reports whether reference is safe in a path: it must not change the path into
// another one.
func isReference(reference string) bool {
	name, tag, tagged := strings.Cut(reference, ":")
	namespace, bare, spaced := strings.Cut(name, "/")
	if !spaced {
		bare = namespace
	}
	return len(reference) <= maxReference && isName(bare) && (!spaced || isName(namespace)) && (!tagged || isName(tag))
}

// isName reports whether s consists only of letters, digits, '-', '_' and '.'. It returns false for
// a string of only dots.
func isName(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return strings.Trim(s, ".") != ""
}
