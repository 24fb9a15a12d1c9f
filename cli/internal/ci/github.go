package ci

import (
	"crypto/rand"
	"strings"
)

// InActions reports whether this process runs in a step of GitHub Actions, or of a system that is
// compatible with it.
func InActions(getenv func(name string) string) bool { return getenv("GITHUB_ACTIONS") == "true" }

// OutputVariable is the name of an environment variable. The value of that variable is the path of
// the file in which a step sets its outputs.
const OutputVariable = "GITHUB_OUTPUT"

// IsOutputName reports whether an output of a step can have the name.
func IsOutputName(name string) bool {
	for i, r := range name {
		isLetter := r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !isLetter && (i == 0 || r != '-' && (r < '0' || r > '9')) {
			return false
		}
	}
	return name != ""
}

// Output returns lines for the file of [OutputVariable] that set the output name to value.
// [IsOutputName] must accept the name. The lines set no other output, whatever value contains.
func Output(name, value string) string {
	if !strings.ContainsAny(value, "\r\n") {
		return name + "=" + value + "\n"
	}
	end := rand.Text()
	return name + "<<" + end + "\n" + value + "\n" + end + "\n"
}
