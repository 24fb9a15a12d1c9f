package cli

import (
	"strings"
	"testing"
)

func TestTranslate(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"":                                 "",
		"sandbox":                          "sandbox",
		"sandbox list":                     "ls",
		"sbx cr base -d":                   "create base -d",
		"sandbox snapshot list":            "snapshot list",
		"sandbox connect x":                "connect x",
		"sandbox attach x":                 "sandbox attach x",
		"sandbox -v ls":                    "sandbox -v ls",
		"exec x -- sandbox list":           "exec x -- sandbox list",
		"run sandbox list":                 "run sandbox list",
		"-v sbx ls":                        "-v ls",
		"-o json sandbox list":             "-o json ls",
		"-ojson --jq=.[0] sandbox list":    "-ojson --jq=.[0] ls",
		"--domain sandbox list sandbox ls": "--domain sandbox list sandbox ls",
		"--domain sandbox sandbox list":    "--domain sandbox ls",
		"-o":                               "-o",
		"--nosuch sandbox list":            "--nosuch ls",
	} {
		if got := strings.Join(translate(strings.Fields(from)), " "); got != want {
			t.Errorf("%q is %q here, want %q", from, got, want)
		}
	}
}
