//go:build linux

package e2e

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/escapetest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestEscapeFromKernel runs code that tries actions that are forbidden to
// commands: a kernel is forked outside of its sandbox, or runs as another user.
func TestEscapeFromKernel(t *testing.T) {
	t.Parallel()
	escapes := escapetest.List(t, os.Getpid())
	for name, start := range map[string]func(t *testing.T) *sandbox.Sandbox{
		"forked": func(t *testing.T) *sandbox.Sandbox {
			sb := warmCloud(t).Create(t)
			if got := sandboxtest.Eval(t, sb, forked); got != "True" {
				t.Fatal("the kernel was not forked")
			}
			return sb
		},
		"started": func(t *testing.T) *sandbox.Sandbox {
			cloud := shared(t)
			if cloud.Isolation() != local.Full {
				cloud = sandboxtest.New(t, local.WithIsolation(local.Full)) // skips, and fails in CI
			}
			return cloud.Create(t, sandbox.WithEnvs(startsCold))
		},
		"without namespaces": func(t *testing.T) *sandbox.Sandbox {
			return sandboxtest.New(t, local.WithIsolation(local.Restricted)).Create(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			sb := start(t)
			inPlace := name == "without namespaces"
			tried := escapes
			if inPlace {
				tried = slices.Concat(escapes, escapetest.InPlace(t))
			}
			for _, e := range tried {
				if e.FullOnly && inPlace {
					continue
				}
				script, err := json.Marshal("export TMPDIR=$(mktemp -d); (" + e.Command + "); echo tried")
				must.Do(t, err)
				code := "import subprocess; print(subprocess.run(" + string(script) + ", shell=True, stdin=-3, stdout=-1, stderr=-2).stdout.decode(errors='replace'))"
				execution, err := sb.RunCode(t.Context(), code, nil)
				// Code that did not run proves nothing.
				if err != nil || strings.Contains(execution.Stdout, "ESCAPED") || !strings.HasSuffix(strings.TrimSpace(execution.Stdout), "tried") {
					t.Errorf("%s: %s\n%+v, %v", e.Name, e.Command, execution, err)
				}
			}
		})
	}
}
