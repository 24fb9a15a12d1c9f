package cmdutil

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// KubernetesFlags are the flags for the cluster whose pods are sandboxes.
type KubernetesFlags struct {
	options    kubelink.Options
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
	flags.BoolVar(&o.TrustNetworkPolicy, "trust-network-policy", false, "kubernetes: let policies of the cluster alone decide what\npods reach, in namespaces that forbid NET_ADMIN")
	for _, name := range []string{"kubeconfig", "context", "namespace", "image", "program-image", "runtime-class", "trust-network-policy"} {
		k.all = append(k.all, flags.Lookup(name))
	}
}

// AddSecret adds the flag that makes sandboxes outlive their server.
func (k *KubernetesFlags) AddSecret(cmd *cobra.Command) {
	cmd.Flags().Var(&k.secret, "secret-file", "with kubernetes: let sandboxes outlive this server, and serve those of all servers\nwith the same `FILE` of at least 32 random bytes")
	k.all = append(k.all, cmd.Flags().Lookup("secret-file"))
}

// Check refuses the flags with another engine than kubernetes. e may be "".
func (k *KubernetesFlags) Check(cmd *cobra.Command, e string) error {
	if e == kubelink.Name {
		return nil
	}
	for _, flag := range k.all {
		if flag.Changed {
			return Usagef(cmd, "--%s is about sandboxes in pods: it needs --engine %s", flag.Name, kubelink.Name)
		}
	}
	return nil
}

// Options returns what the flags say.
func (k *KubernetesFlags) Options() kubelink.Options {
	o := k.options
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
			arguments = append(arguments, fmt.Sprintf("--%s=%s", flag.Name, flag.Value))
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
