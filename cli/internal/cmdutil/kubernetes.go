package cmdutil

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// KubernetesFlags are the flags for the cluster whose pods are sandboxes.
type KubernetesFlags struct {
	options    kubelink.Options
	home       Size
	templates  imageTemplates
	pools      pools
	kubeconfig path
	secret     path
	all        []*pflag.Flag
}

// Add adds the flags to cmd.
func (k *KubernetesFlags) Add(cmd *cobra.Command) {
	flags, o := cmd.Flags(), &k.options
	flags.Var(&k.kubeconfig, "kubeconfig", "kubernetes: find clusters in `FILE` (default those of\nKUBECONFIG, or else ~/.kube/config)")
	flags.StringVar(&o.Context, "context", "", "kubernetes: context `NAME` (default the current one)")
	flags.StringVar(&o.Namespace, "namespace", "", "kubernetes: make sandboxes in the namespace `NAME`\n(default that of the context)")
	flags.StringVar(&o.Image, "image", "", "kubernetes: `IMAGE` of sandboxes (default python:3.12-slim)")
	flags.StringVar(&o.ProgramImage, "program-image", "", "kubernetes: `IMAGE` with the program that serves a\nsandbox from inside (required)")
	flags.StringVar(&o.RuntimeClass, "runtime-class", "", "kubernetes: runtime class `NAME` (default the cluster's)")
	flags.Var(&atLeast[Size]{&k.home, 1 << 20}, "home", "kubernetes: give each sandbox a volume of `SIZE` at /home/user,\nwhich a pause keeps (default none, and no pauses)")
	flags.StringVar(&o.StorageClass, "storage-class", "", "kubernetes: storage class `NAME` of the volumes of --home\n(default the cluster's)")
	flags.BoolVar(&o.TrustNetworkPolicy, "trust-network-policy", false, "kubernetes: let policies of the cluster alone decide what\npods reach, in namespaces that forbid NET_ADMIN")
	for _, name := range []string{"kubeconfig", "context", "namespace", "image", "program-image", "runtime-class", "home", "storage-class", "trust-network-policy"} {
		k.all = append(k.all, flags.Lookup(name))
	}
}

// AddSecret adds the flag that makes sandboxes outlive their server.
func (k *KubernetesFlags) AddSecret(cmd *cobra.Command) {
	cmd.Flags().Var(&k.secret, "secret-file", "with kubernetes: let sandboxes outlive this server, and serve those of all servers\nwith the same `FILE` of at least 32 random bytes")
	k.all = append(k.all, cmd.Flags().Lookup("secret-file"))
}

// AddTemplates adds the flag for templates that are images.
func (k *KubernetesFlags) AddTemplates(cmd *cobra.Command) {
	cmd.Flags().Var(&k.templates, "template", "kubernetes: add the template `NAME=IMAGE`, whose sandboxes\nhave this image (repeatable)")
	k.all = append(k.all, cmd.Flags().Lookup("template"))
}

// AddPools adds the flag for pools of pods, which are ready for new sandboxes.
func (k *KubernetesFlags) AddPools(cmd *cobra.Command) {
	cmd.Flags().Var(&k.pools, "pool", "with kubernetes: keep N pods ready for the next sandboxes of a template,\nas `NAME=N` (repeatable); they outlive the server, and 0 removes them")
	k.all = append(k.all, cmd.Flags().Lookup("pool"))
}

// maxPool is the maximum number of pods in a pool.
const maxPool = 1000

// pools is the value of a flag: templates, each with the number of pods in its pool.
type pools []kubelink.Pool

// Type returns the name of the type.
func (p *pools) Type() string { return "NAME=N" }

func (p *pools) String() string { return strings.Join(p.GetSlice(), ", ") }

// Set adds one pool.
func (p *pools) Set(value string) error {
	name, number, _ := strings.Cut(value, "=")
	size, err := strconv.Atoi(number)
	switch {
	case name == "" || err != nil || size < 0 || size > maxPool:
		return fmt.Errorf("want NAME=N with a template and a number from 0 to %d, such as base=5, got %.200q", maxPool, value)
	case slices.ContainsFunc(*p, func(other kubelink.Pool) bool { return other.Template == name }):
		return fmt.Errorf("there are two pools for the template %s", name)
	}
	*p = append(*p, kubelink.Pool{Template: name, Size: size})
	return nil
}

// GetSlice returns the values, each as Set takes it.
func (p *pools) GetSlice() []string {
	values := make([]string, len(*p))
	for at, pool := range *p {
		values[at] = fmt.Sprintf("%s=%d", pool.Template, pool.Size)
	}
	return values
}

// imageTemplates is the value of a flag: templates, each with its container image.
type imageTemplates []kubelink.Template

// Type returns the name of the type.
func (i *imageTemplates) Type() string { return "NAME=IMAGE" }

func (i *imageTemplates) String() string { return strings.Join(i.GetSlice(), ", ") }

// Set adds one template.
func (i *imageTemplates) Set(value string) error {
	name, image, _ := strings.Cut(value, "=")
	same := func(t kubelink.Template) bool { return t.Name == name }
	switch {
	case name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "":
		return fmt.Errorf("want NAME=IMAGE with a name of lower-case letters, digits, hyphens and underscores, got %.200q", value)
	case image == "" || strings.ContainsFunc(image, unicode.IsSpace):
		return fmt.Errorf("the template %s has no image: want NAME=IMAGE, such as tools=python:3.12-slim", name)
	case slices.Contains(kubelink.BuiltIn(), name):
		return fmt.Errorf("%s is built in: --image sets its image", name)
	case slices.ContainsFunc(*i, same):
		return fmt.Errorf("there are two templates %s", name)
	}
	*i = append(*i, kubelink.Template{Name: name, Image: image})
	return nil
}

// GetSlice returns the values, each as Set takes it.
func (i *imageTemplates) GetSlice() []string {
	values := make([]string, len(*i))
	for at, t := range *i {
		values[at] = t.Name + "=" + t.Image
	}
	return values
}

// FlagArguments returns the arguments that set a flag to its value.
func FlagArguments(flag *pflag.Flag) []string {
	values := []string{flag.Value.String()}
	if list, ok := flag.Value.(interface{ GetSlice() []string }); ok {
		values = list.GetSlice()
	}
	for i, value := range values {
		values[i] = "--" + flag.Name + "=" + value
	}
	return values
}

// Check refuses the flags if the engine e is not kubernetes. It also refuses them if e is "".
func (k *KubernetesFlags) Check(cmd *cobra.Command, e string) error {
	if e == kubelink.Name {
		if len(k.pools) > 0 && k.secret == "" {
			return Usagef(cmd, "the pods of --pool outlive the server: add --secret-file FILE, by which the next server knows them")
		}
		return k.CheckPods(cmd)
	}
	for _, flag := range k.all {
		if flag.Changed {
			return Usagef(cmd, "--%s is about sandboxes in pods: it needs --engine %s", flag.Name, kubelink.Name)
		}
	}
	return nil
}

// CheckPods refuses a storage class without homes, and pools of templates that do not exist.
func (k *KubernetesFlags) CheckPods(cmd *cobra.Command) error {
	if k.options.StorageClass != "" && k.home == 0 {
		return Usagef(cmd, "--storage-class is about the volumes of --home: add --home SIZE")
	}
	for _, pool := range k.pools {
		is := func(t kubelink.Template) bool { return t.Name == pool.Template }
		if !slices.Contains(kubelink.BuiltIn(), pool.Template) && !slices.ContainsFunc(k.templates, is) {
			return Usagef(cmd, "--pool %[1]s=%[2]d is for a template that does not exist: add --template %[1]s=IMAGE", pool.Template, pool.Size)
		}
	}
	return nil
}

// Options returns the settings of the flags.
func (k *KubernetesFlags) Options() kubelink.Options {
	o := k.options
	o.HomeBytes, o.Templates, o.Pools = int64(k.home), k.templates, k.pools
	o.Kubeconfig, o.SecretFile = string(k.kubeconfig), string(k.secret)
	return o
}

// LocalOption returns the option that starts a local cloud with the flags.
func (k *KubernetesFlags) LocalOption() local.Option {
	return kubelink.LocalOption(k.Options()).(local.Option)
}

// Arguments returns the given flags as arguments for another e2bctl.
func (k *KubernetesFlags) Arguments() []string {
	var arguments []string
	for _, flag := range k.all {
		if flag.Changed {
			arguments = append(arguments, FlagArguments(flag)...)
		}
	}
	return arguments
}

// AbsoluteKubeconfig makes the paths in KUBECONFIG absolute, for processes in other directories.
func AbsoluteKubeconfig() (err error) {
	const name = "KUBECONFIG"
	files := filepath.SplitList(os.Getenv(name))
	if len(files) == 0 {
		return nil
	}
	for i, file := range files {
		if file == "" {
			continue
		}
		if files[i], err = filepath.Abs(file); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return os.Setenv(name, strings.Join(files, string(filepath.ListSeparator)))
}
