package cmdutil

import (
	"cmp"
	"strings"
)

// SandboxPath cuts ID:PATH, a path of a sandbox on the command line, and reports whether text is
// that. An empty PATH is the home of the user, as ".".
func SandboxPath(text string) (id, path string, ok bool) {
	id, path, ok = strings.Cut(text, ":")
	return id, cmp.Or(path, "."), ok && len(id) > 1 && !strings.ContainsAny(id, `/\`) // one letter is a drive
}
