package serve

import (
	"bytes"
	"encoding/base64"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
)

// printed returns the manifests of a server without its Secrets, if args say nothing else.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	err := cmdtest.Execute(t, cmdutil.NewIOStreams(strings.NewReader(""), &out, &errs), func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdServe(f)} },
		append([]string{"serve", "--manifests", "--program-image", "e2bctl.test/e2bctl:1", "--quiet"}, args...)...)
	must.Do(t, err)
	if errs.Len() > 0 {
		t.Errorf("%q: printed %q, want the manifests alone", args, &errs)
	}
	return out.String()
}

// TestSecretsOfManifests checks that each manifest has a key and a seed of its own, and that nothing else is different.
func TestSecretsOfManifests(t *testing.T) {
	t.Parallel()
	want := printed(t, "--keep-secrets")
	secret := regexp.MustCompile(`(?m)^ {4}(e2b_[0-9a-f]{40})$|^ {2}seed: (\S+)$`)
	seen := map[string]bool{}
	for range 2 {
		got := printed(t)
		found := secret.FindAllStringSubmatch(got, -1)
		if len(found) != 2 {
			t.Fatalf("got %s, want a key and a seed", got)
		}
		key, text := found[0][1], found[1][2]
		seed, err := base64.StdEncoding.DecodeString(text)
		must.Do(t, err)
		if len(seed) != 32 || seen[key] || seen[text] {
			t.Errorf("got the key %s and the seed %s, want 20 and 32 new random bytes", key, text)
		}
		seen[key], seen[text] = true, true
		secrets := os.Expand(secretsText, func(name string) string {
			return map[string]string{"server": `"e2bctl"`, "key": key, "seed": text}[name]
		})
		if diff := cmp.Diff(want, strings.Replace(got, secrets, "", 1)); diff != "" {
			t.Errorf("without the secrets (-want +got):\n%s", diff)
		}
	}
}

// TestTrustOfManifests checks that sandboxes may not change their network where the cluster is trusted to bound it.
func TestTrustOfManifests(t *testing.T) {
	t.Parallel()
	want := strings.NewReplacer(
		"The first container of each pod needs NET_ADMIN to close its network. Sandboxes do not have it.", "The network policy below is all that keeps sandboxes from private networks.",
		"enforce: privileged", "enforce: baseline",
		`--host=e2bctl.e2bctl.svc.cluster.local"`+"\n", `--host=e2bctl.e2bctl.svc.cluster.local"`+"\n"+`            - "--trust-network-policy=true"`+"\n",
	).Replace(printed(t, "--keep-secrets"))
	if diff := cmp.Diff(want, printed(t, "--keep-secrets", "--trust-network-policy")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
