package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"
)

// Linked is the engine for [kubelink.Link].
type Linked struct{}

var _ kubelink.Engine = Linked{}

// Open opens the engine on the cluster that o names.
func (Linked) Open(ctx context.Context, o kubelink.Options, logger *slog.Logger) (engine.Engine, error) {
	logTo(logger)
	if o.ProgramImage == "" {
		return nil, errors.New("the engine kubernetes needs the image with the program that serves a sandbox from inside: name it with --program-image of e2bctl local up or serve")
	}
	c, err := find(o)
	if err != nil {
		return nil, err
	}
	secret, err := readSecret(o.SecretFile)
	if err != nil {
		return nil, err
	}
	pools, err := poolsOf(o)
	if err != nil {
		return nil, err
	}
	return Open(ctx, Options{
		Config: c.config, Namespace: c.namespace, Image: o.Image, ProgramImage: o.ProgramImage, RuntimeClass: o.RuntimeClass,
		HomeBytes: o.HomeBytes, StorageClass: o.StorageClass, TrustNetworkPolicy: o.TrustNetworkPolicy, Secret: secret, Logger: logger,
		Pools: pools, Limits: o.Limits,
	})
}

// poolsOf returns the pools of the options. The template of a pool must be in the options or built in.
func poolsOf(o kubelink.Options) (pools []Pool, err error) {
	for _, pool := range o.Pools {
		at := slices.IndexFunc(o.Templates, func(t kubelink.Template) bool { return t.Name == pool.Template })
		switch {
		case at >= 0:
			pools = append(pools, Pool{&engine.Image{Reference: o.Templates[at].Image}, pool.Size})
		case slices.Contains(kubelink.BuiltIn(), pool.Template):
			pools = append(pools, Pool{nil, pool.Size})
		default:
			return nil, fmt.Errorf("a pool for the template %s, which does not exist: add it with --template %s=IMAGE", pool.Template, pool.Template)
		}
	}
	return pools, nil
}

// readSecret reads the secret of servers. White space at the end is not a part of it, as editors add it.
// The secret of no file is nil.
func readSecret(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	secret, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	if err != nil {
		return nil, err
	}
	secret = bytes.TrimRight(secret, " \t\r\n")
	if len(secret) < minSecret || len(secret) > maxSecret {
		return nil, fmt.Errorf("the secret in %s has %d bytes, want %d to %d: write one with `openssl rand -base64 32`", path, len(secret), minSecret, maxSecret)
	}
	return secret, nil
}

// maxSecret is the largest number of bytes of a secret.
const maxSecret = 4 << 10

// cluster is a cluster that a user chose, and a namespace there.
type cluster struct {
	config    *rest.Config
	context   string // of the kubeconfig; "": this program runs in the cluster
	namespace string
}

// find returns the cluster that the options name, as kubectl would find it.
func find(o kubelink.Options) (cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	rules.WarnIfAllMissing = false // the error below says it
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	overrides.Context.Namespace = o.Namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return cluster{}, errors.New("no cluster is configured: name a file with --kubeconfig or KUBECONFIG, as for kubectl")
	}
	if err != nil {
		return cluster{}, fmt.Errorf("the kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return cluster{}, fmt.Errorf("the namespace: %w", err)
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return cluster{}, fmt.Errorf("the kubeconfig: %w", err)
	}
	return cluster{config, cmp.Or(o.Context, raw.CurrentContext), namespace}, nil
}

// logTo sends the log of Kubernetes' client to the logger. By itself it writes to stderr.
func logTo(logger *slog.Logger) {
	klog.SetLogger(logr.FromSlogHandler(logger.Handler()))
}
