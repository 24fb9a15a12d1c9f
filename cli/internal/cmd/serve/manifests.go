package serve

import (
	"cmp"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"
	"github.com/e2bctl/e2bctl/internal/cloud/localtls"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

const (
	defaultServerNamespace  = "e2bctl"
	defaultSandboxNamespace = "e2bctl-sandboxes"
	pausedToo               = 10  // number of volumes for each sandbox that may run, so that there are volumes for paused sandboxes, too
	drainPause              = 5   // seconds before the signal to end, in which the cluster stops sending requests to the server
	defaultMaxSandboxes     = 100 // the server gets this number as a flag, and the namespace gets it as its quota
)

// manifestsText and secretsText are the manifests, with ${name} in place of each value of
// [manifests.values]. They are no templates of [text/template], because the use of that package
// would make the linker keep every exported method in the program.
//
//go:embed manifests.yaml
var manifestsText string

//go:embed secrets.yaml
var secretsText string

// manifests has the values that differ between servers.
type manifests struct {
	Server, Sandboxes  string // namespaces
	Image              string
	Arguments          []string // of the server
	Rights             []kubelink.Right
	TrustNetworkPolicy bool
	MaxSandboxes       int
	Pooled             int   // pods of all pools
	MaxHomes           int   // volumes of running and paused sandboxes; 0: they have none
	MemoryMiB          int64 // of all sandboxes
	Grace              int   // seconds after which the cluster kills a server that it ends
	Denied4, Denied6   []string
	Key, Seed          string // "": the cluster has the Secrets
}

// carries reports whether the server in the cluster gets a flag of this command with the same
// value. All other flags are set by the manifests, or are about this machine.
func carries(flag string) bool {
	return slices.Contains([]string{
		"domain", "drain", "public-code", "memory", "cpus", "disk", "image", "template", "pool", "runtime-class", "home", "storage-class", "trust-network-policy",
	}, flag)
}

// isManifestFlag reports whether a flag is one of the manifests themselves.
func isManifestFlag(flag string) bool {
	return slices.Contains([]string{"manifests", "keep-secrets", "server-namespace", "namespace", "program-image", "host", "engine", "max-sandboxes"}, flag)
}

// printManifests prints the manifests of a server with the given flags.
func printManifests(cmd *cobra.Command, o *options) error {
	m, err := o.manifests(cmd)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(o.Factory.IO.Out, m.text()); err != nil {
		return err
	}
	if !o.Factory.Quiet() {
		fmt.Fprintf(o.Factory.IO.Err, nextSteps, m.Server)
	}
	return nil
}

// text returns the manifests.
func (m manifests) text() string {
	values := m.values()
	value := func(name string) string { return values[name] }
	if m.Key != "" {
		values["secrets"] = os.Expand(secretsText, value)
	}
	return os.Expand(manifestsText, value)
}

// values returns the values in the text of the manifests, by name.
func (m manifests) values() map[string]string {
	values := map[string]string{
		"server": yaml(m.Server), "sandboxes": yaml(m.Sandboxes), "image": yaml(m.Image), "key": m.Key, "seed": m.Seed, "secrets": "",
		"maxObjects": strconv.Itoa(max(m.MaxSandboxes+m.Pooled, m.MaxHomes)), "maxHomes": strconv.Itoa(m.MaxHomes), "memoryMiB": strconv.FormatInt(m.MemoryMiB, 10), "denied4": yaml(m.Denied4), "denied6": yaml(m.Denied6),
		"drainPause": strconv.Itoa(drainPause), "grace": strconv.Itoa(m.Grace),
		"network":     "The first container of each pod needs NET_ADMIN to close its network. Sandboxes do not have it.",
		"podSecurity": "privileged",
	}
	if m.TrustNetworkPolicy {
		values["network"], values["podSecurity"] = "The network policy below is all that keeps sandboxes from private networks.", "baseline"
	}
	for _, r := range m.Rights {
		values["rules"] += fmt.Sprintf("  - apiGroups: [%s]\n    resources: [%s]\n    verbs: %s\n", yaml(r.Group), yaml(r.Resource), yaml(r.Verbs))
	}
	for _, argument := range m.Arguments {
		values["arguments"] += "            - " + yaml(argument) + "\n"
	}
	return values
}

// yaml returns a string or a list of strings as YAML: all JSON is YAML.
func yaml(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the value is a string, or a list of strings
	}
	return string(text)
}

// nextSteps are printed on stderr after the manifests.
const nextSteps = `When kubectl has applied them:
  kubectl -n %[1]s rollout status deployment/e2bctl
  kubectl -n %[1]s port-forward service/e2bctl 3000 &
  export E2B_API_URL=http://localhost:3000 E2B_SANDBOX_URL=http://localhost:3000
  export E2B_API_KEY=$(kubectl -n %[1]s get secret e2bctl-keys -o jsonpath='{.data.keys}' | base64 -d)
`

// manifests returns the manifests for the given flags.
func (o *options) manifests(cmd *cobra.Command) (m manifests, err error) {
	kubernetes := o.Kubernetes.Options()
	m = manifests{
		Server: cmp.Or(o.ServerNamespace, defaultServerNamespace), Sandboxes: cmp.Or(kubernetes.Namespace, defaultSandboxNamespace),
		Image: kubernetes.ProgramImage, TrustNetworkPolicy: kubernetes.TrustNetworkPolicy, Rights: kubelink.Rights(0, len(kubernetes.Pools) > 0),
		MaxSandboxes: cmp.Or(int(o.MaxSandboxes), defaultMaxSandboxes),
		Grace:        drainPause + int(math.Ceil((time.Duration(o.Drain) + cmdutil.CleanupGrace).Seconds())),
	}
	if err := o.checkManifests(cmd, m); err != nil {
		return m, err
	}
	memory := engine.Limits(o.Resources.Limits()).WithDefaults().MemoryBytes
	for _, pool := range kubernetes.Pools {
		m.Pooled += pool.Size
	}
	m.MemoryMiB = memory * int64(m.MaxSandboxes+m.MaxSandboxes/10+1+m.Pooled) >> 20
	for _, prefix := range network.NotInternet() {
		if prefix.Addr().Is4() {
			m.Denied4 = append(m.Denied4, prefix.String())
		} else {
			m.Denied6 = append(m.Denied6, prefix.String())
		}
	}
	if kubernetes.HomeBytes > 0 {
		m.MaxHomes = pausedToo*m.MaxSandboxes + m.Pooled
	}
	m.Arguments = o.serverArguments(cmd, m)
	if !o.KeepSecrets {
		random := make([]byte, 20+32)
		_, _ = rand.Read(random) // never fails
		m.Key, m.Seed = "e2b_"+hex.EncodeToString(random[:20]), base64.StdEncoding.EncodeToString(random[20:])
	}
	return m, nil
}

// checkManifests refuses flags that do not apply to the manifests, and invalid values of flags.
func (o *options) checkManifests(cmd *cobra.Command, m manifests) error {
	var foreign string
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if foreign == "" && f.Changed && !carries(f.Name) && !isManifestFlag(f.Name) {
			foreign = f.Name
		}
	})
	switch e := o.Resources.Engine(); {
	case foreign != "":
		return cmdutil.Usagef(cmd, "--manifests sets --%[1]s itself, or has no use for it: leave out --%[1]s", foreign)
	case e != "" && e != kubelink.Name:
		return cmdutil.Usagef(cmd, "--manifests is for a cluster: leave out --engine %s", e)
	case o.Factory.JSON():
		return cmdutil.Usagef(cmd, "--manifests prints YAML: leave out -o")
	case m.Image == "":
		return cmdutil.Usagef(cmd, "--manifests needs the image of the server: build it with make image, push it to a registry that the cluster pulls from, and name it with --program-image")
	case o.Kubernetes.CheckPods(cmd) != nil:
		return o.Kubernetes.CheckPods(cmd)
	case m.Server == m.Sandboxes:
		return cmdutil.Usagef(cmd, "server and sandboxes need a namespace each, and both have %s", m.Server)
	}
	for _, namespace := range []string{m.Server, m.Sandboxes} {
		if strings.Contains(namespace, ".") || localtls.CheckHost(namespace) != nil {
			return cmdutil.Usagef(cmd, "the namespace %.100q is not a name of lower-case letters, digits and hyphens", namespace)
		}
	}
	kubernetes := o.Kubernetes.Options()
	images := []string{m.Image, kubernetes.Image}
	for _, t := range kubernetes.Templates {
		images = append(images, t.Image)
	}
	for _, image := range images {
		if _, err := name.ParseReference(image); err != nil && image != "" {
			return cmdutil.Usagef(cmd, "the image %.200q: %w", image, err)
		}
	}
	return nil
}

// serverArguments returns the arguments of the server in the cluster.
func (o *options) serverArguments(cmd *cobra.Command, m manifests) []string {
	arguments := []string{
		"serve", "--engine=" + kubelink.Name, "--namespace=" + m.Sandboxes, "--program-image=" + m.Image,
		"--behind-proxy", "--address=:3000", "--metrics-address=:9090", "--ephemeral", fmt.Sprintf("--max-sandboxes=%d", m.MaxSandboxes),
		"--keys-file=/etc/e2bctl/keys/keys", "--secret-file=/etc/e2bctl/seed/seed",
	}
	const service = "e2bctl"
	in := service + "." + m.Server
	for _, host := range append([]string{service, in, in + ".svc", in + ".svc.cluster.local"}, o.Service.Hosts...) {
		arguments = append(arguments, "--host="+host)
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if carries(f.Name) {
			arguments = append(arguments, cmdutil.FlagArguments(f)...)
		}
	})
	return arguments
}
