package cmdutil

import (
	"cmp"
	"strings"
)

// SandboxPath splits ID:PATH, the form of a path in a sandbox on the command line. ok reports
// whether text has that form. For an empty PATH it returns ".", the home directory of the user.
func SandboxPath(text string) (id, path string, ok bool) {
	id, path, ok = strings.Cut(text, ":")
	return id, cmp.Or(path, "."), ok && len(id) > 1 && !strings.ContainsAny(id, `/\`) // one letter is a drive
}
