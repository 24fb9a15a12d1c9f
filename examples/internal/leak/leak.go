// Package leak looks for a secret in a sandbox, for tests of examples that promise
// that it never gets there.
package leak

import (
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
)

var (
	//go:embed search.py
	search string
	//go:embed kernel.py
	kernel string
)

// Search lists where the secret is, as it is, reversed, in hex or in base64: in
// the environments and the command lines of processes, and in files, as far as the
// user can read them. It does not disturb code that runs.
func Search(t *testing.T, sb *sandbox.Sandbox, user, secret string) []string {
	t.Helper()
	// The secret comes on the standard input, where nobody else sees it, and the
	// search does not find itself.
	result, err := sb.Commands.Run(t.Context(), `exec python3 -c "$SCRIPT"`, &sandbox.CommandParams{
		User: user, Stdin: strings.NewReader(secret), Envs: map[string]string{"SCRIPT": search},
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(result.Stdout, "\n"), "\n")[1:]
}

// Kernel lists where the secret is in the default context: in what was run, in
// what came of it, in variables and in the environment.
func Kernel(t *testing.T, sb *sandbox.Sandbox, secret string) []string {
	t.Helper()
	disguised := []byte(secret) // or the search finds itself
	for i := range disguised {
		disguised[i] ^= 0xff
	}
	var places []string
	execution, err := sb.RunCode(t.Context(), fmt.Sprintf(kernel, hex.EncodeToString(disguised)), nil)
	if err == nil {
		err = execution.Decode(&places)
	}
	if err != nil {
		t.Fatal(err)
	}
	return places
}
