// Package leak looks for a secret in sandboxes, for tests of examples that promise that the secret
// never reaches a sandbox.
package leak

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

var (
	//go:embed sandbox.py
	sandboxSearch string
	//go:embed kernel.py
	kernelSearch string
)

// Cloud returns a cloud whose sandboxes cannot see this process, which has the secret. If the
// machine cannot run such a cloud, Cloud skips the test. If the environment variable CI is "true",
// it fails the test instead.
func Cloud(t testing.TB, opts ...local.Option) *sandboxtest.Cloud {
	t.Helper()
	cloud := sandboxtest.New(t, opts...)
	if cloud.Isolation() != local.Full {
		if os.Getenv("CI") == "true" {
			t.Fatalf("isolation is %s here: the search needs sandboxes with processes and files of their own", cloud.Isolation())
		}
		t.Skipf("isolation is %s here", cloud.Isolation())
	}
	return cloud
}

// Secret is a secret to search for in sandboxes. A search finds it unchanged, reversed, in hex, in
// base64 and in the form in which Python stores strings in memory.
type Secret struct {
	Text  string
	since time.Time // the time at which the secret was made; older data cannot contain the secret
}

// New returns a new random secret that begins with prefix. The secret exists only in this
// process. A constant would be in the memory of every process that runs the program.
func New(prefix string) Secret { return Secret{prefix + rand.Text(), time.Now()} }

// Findings are the result of a search of a sandbox.
type Findings struct {
	// Found are the places of the secret, sorted. For a process they are "environ of 12", "cmdline of
	// 12" and "memory of 12". For the content of a file it is "file /path". "name /path" means that
	// the name of a file, or the target of a symbolic link, contains the secret.
	Found    []string
	Refused  []string // places that neither root nor the user may read
	Memories []int    // processes whose memory was read
	Files    int      // the number of files that were read
	Bytes    int      // the number of bytes of memory that were read
}

// Search searches a sandbox as code with a shell could. It searches once as each of the sandbox's
// users, because not even root may read the memory of another user's processes. It does not disturb
// running code.
func (s Secret) Search(ctx context.Context, sb *sandbox.Sandbox) (*Findings, error) {
	program := fmt.Sprintf("%s\nrun(%s, %d, %d)\n", sandboxSearch, s.masked(), mask, s.since.Unix())
	all, refused := &Findings{}, map[string]int{}
	users := []string{"root", "user"}
	for _, user := range users {
		result, err := sb.Commands.Run(ctx, "exec python3 -I -", &sandbox.CommandParams{User: user, Stdin: strings.NewReader(program), Timeout: 5 * time.Minute})
		if err != nil {
			return nil, err
		}
		var f Findings
		if err := json.Unmarshal([]byte(result.Stdout), &f); err != nil {
			return nil, err
		}
		all.Found = append(all.Found, f.Found...)
		all.Memories = append(all.Memories, f.Memories...)
		all.Files += f.Files
		all.Bytes += f.Bytes
		for _, place := range f.Refused {
			if refused[place]++; refused[place] == len(users) {
				all.Refused = append(all.Refused, place)
			}
		}
	}
	// If both users have the same id, both searches find the same places.
	slices.Sort(all.Found)
	all.Found = slices.Compact(all.Found)
	return all, nil
}

// Kernel is the result of a search of a kernel.
type Kernel struct {
	Context sandbox.ContextID // the id of the kernel's context
	PID     int
	Found   []string // the places of the secret: "In", "history", "variables", "objects", "environment"
}

// SearchKernels searches every kernel of a sandbox by code that runs in the kernel. It searches the
// executed code and its results, the variables, all objects and the environment. It waits for
// running code, and starts the kernel of the default context if necessary. It returns an error if
// there is no kernel.
func (s Secret) SearchKernels(ctx context.Context, sb *sandbox.Sandbox) ([]Kernel, error) {
	contexts, err := sb.Contexts.List(ctx)
	if err != nil {
		return nil, err
	}
	if len(contexts) == 0 {
		return nil, fmt.Errorf("the sandbox %s has no kernel to search", sb.ID())
	}
	code := fmt.Sprintf("%s\n_search(%s, %d)", kernelSearch, s.masked(), mask)
	var kernels []Kernel
	for _, c := range contexts {
		execution, err := sb.RunCode(ctx, code, &sandbox.RunCodeParams{Context: c.ID})
		if err != nil {
			return nil, err
		}
		kernel := Kernel{Context: c.ID}
		if err := execution.Decode(&kernel); err != nil {
			return nil, err
		}
		kernels = append(kernels, kernel)
	}
	return kernels, nil
}

// Everywhere returns the places that Search and SearchKernels find in a sandbox. It returns an
// error if the memory of a kernel was not read.
func (s Secret) Everywhere(ctx context.Context, sb *sandbox.Sandbox) ([]string, error) {
	kernels, err := s.SearchKernels(ctx, sb)
	if err != nil {
		return nil, err
	}
	f, err := s.Search(ctx, sb)
	if err != nil {
		return nil, err
	}
	found := f.Found
	for _, kernel := range kernels {
		if !slices.Contains(f.Memories, kernel.PID) {
			return nil, fmt.Errorf("the memory of the kernel %d was not read: refused were %q", kernel.PID, f.Refused)
		}
		for _, place := range kernel.Found {
			found = append(found, fmt.Sprintf("%s of the kernel %d", place, kernel.PID))
		}
	}
	return found, nil
}
