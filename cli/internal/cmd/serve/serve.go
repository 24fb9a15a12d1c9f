// Package serve implements e2bctl serve: the local cloud as a service for other machines.
package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/cloud"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/localtls"
	"github.com/e2bctl/e2bctl/internal/privatedir"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

type options struct {
	Factory      *cmdutil.Factory
	Address      string
	Domain       string
	State        string // the state directory; "" means the default directory of this user
	Ephemeral    bool
	MaxSandboxes cmdutil.Count
	Warm         uint8
	VolumeSize   cmdutil.Size
	Drain        cmdutil.Duration
	Resources    cmdutil.ResourceFlags
	Most         cmdutil.MostFlags
	Kubernetes   cmdutil.KubernetesFlags
	Service      cloud.Service

	Manifests, KeepSecrets bool
	ServerNamespace        string
}

// Bounds of the time that requests have to end. The default time, the pause of the manifests before
// the signal, and the clean-up are 30 seconds together, after which Kubernetes kills a server by default.
const (
	defaultDrain = cmdutil.Duration(20 * time.Second)
	maxDrain     = cmdutil.Duration(24 * time.Hour)
)

const help = `Serve the E2B API and its sandboxes to other machines, until it is told to end. Any E2B
SDK reaches it with E2B_API_URL and E2B_SANDBOX_URL, both the address of this server, and
a key in E2B_API_KEY.

One server is one team: every key sees, uses and ends every sandbox. Give each tenant
a server of its own.

API keys are in the files of --keys-file alone, one in a line, as
"echo e2b_$(openssl rand -hex 20)" prints one. A changed file takes effect with the next
request, and requests cannot change keys. Keys are never printed.

TLS ends here, with the files of --tls-cert and --tls-key, which are read again when they
change; or in a proxy, with --behind-proxy: the proxy alone may reach the address, keeps the
Host of requests, and sets X-Forwarded-Proto.

Sandboxes are isolated fully, or the server does not start. They reach no private network
and no directory of this machine, whatever a request says, and each has an access token.
The ports that run code, 49999 and 8888, take that token or the traffic token, which current
SDKs send. With --public-code everybody who knows the id of a sandbox can run code in
it, as clients need that send neither.

The server answers requests for localhost, addresses, --domain, the names below it, and each
--host, such as the name of a service in a cluster. Requests for other names get status 421.

--metrics-address serves /readyz and /metrics, in the text format of Prometheus, without
keys and without ids of sandboxes, on an address of its own.

With --engine kubernetes sandboxes are pods of a cluster, which has agent-sandbox of the
version 0.5. The cluster and its user are those of kubectl: the current context, or the service
account if this program runs in a pod. The program e2bctl-kubernetes has this engine;
e2bctl starts it in its own place, from beside its own file or from PATH. With --secret-file
sandboxes outlive the server, and all servers with that file and namespace serve them.

--manifests prints all that a server in a cluster consists of: a namespace for it and one for
sandboxes, its rights there and no others, bounds, new keys, a Deployment and a Service. It takes
the flags that such a server can have, such as --max-sandboxes and --runtime-class.

The log is JSON on stderr. On SIGTERM /readyz turns to 503, and requests and open streams
have the time of --drain to end. New requests get status 503 with Retry-After, before they
have any effect. A second signal ends that wait. Let what stops the server, such as docker
stop -t, wait 5 seconds longer than --drain before it kills.

Then the server ends as e2bctl local down ends a local cloud: sandboxes that pause when their time is over (autoPause) are paused, all others end.
Templates, volumes and paused sandboxes outlive it in --state-dir.`

// NewCmdServe returns e2bctl serve.
func NewCmdServe(f *cmdutil.Factory) *cobra.Command {
	opts := &options{Factory: f, Drain: defaultDrain}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve sandboxes to other machines",
		Long:  help,
		Example: `  e2bctl serve --tls-cert tls.crt --tls-key tls.key --keys-file keys
  e2bctl serve --behind-proxy --address 127.0.0.1:3000 --keys-file keys --domain e2b.example.com
  e2bctl serve --behind-proxy --keys-file /keys/current --host e2bctl --metrics-address :9090
  e2bctl serve --manifests --program-image registry.example.com/e2bctl:1 | kubectl apply -f -`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.check(cmd); err != nil {
				return err
			}
			if opts.Manifests {
				return printManifests(cmd, opts)
			}
			return serveRun(cmd.Context(), opts)
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	flags, s := cmd.Flags(), &o.Service
	flags.StringVar(&o.Address, "address", ":3000", "listen on `HOST:PORT`; without a host, on all addresses")
	flags.StringVar(&s.CertFile, "tls-cert", "", "certificate for TLS and its intermediates, in the PEM `FILE`")
	flags.StringVar(&s.KeyFile, "tls-key", "", "private key of the certificate, in the PEM `FILE`")
	flags.BoolVar(&s.BehindProxy, "behind-proxy", false, "serve plain HTTP to a proxy that ends TLS")
	flags.StringArrayVar(&s.KeyFiles, "keys-file", nil, "accept the API keys in `FILE`, one in a line, repeatable")
	flags.StringVar(&o.Domain, "domain", "", "serve api.`NAME` and PORT-ID.NAME, too, which lead to this server\n(default localhost)")
	flags.StringArrayVar(&s.Hosts, "host", nil, "answer requests for the host `NAME`, too, repeatable")
	flags.BoolVar(&s.PublicCode, "public-code", false, "let whoever knows the id of a sandbox run code in it")
	flags.StringVar(&s.MetricsAddress, "metrics-address", "", "serve /readyz and /metrics on `HOST:PORT`")
	flags.Var(&o.Drain, "drain", "how long requests and open streams may go on after SIGTERM")
	flags.Var(&o.MaxSandboxes, "max-sandboxes", "how many sandboxes may run at once (default 100)")
	flags.StringVar(&o.State, "state-dir", "", "keep templates, volumes and paused sandboxes in `DIR`;\n\"\": e2bctl/serve in $XDG_STATE_HOME or ~/.local/state")
	flags.BoolVar(&o.Ephemeral, "ephemeral", false, "keep nothing")
	flags.Var(&o.VolumeSize, "volume-size", "what each new volume can hold, as root (default no bound)")
	flags.Uint8Var(&o.Warm, "warm", local.DefaultWarm, "keep `N` sandboxes ready for the next creates; 0: none")
	o.Resources.Add(cmd)
	o.Most.Add(flags)
	o.Kubernetes.Add(cmd)
	o.Kubernetes.AddSecret(cmd)
	o.Kubernetes.AddTemplates(cmd)
	o.Kubernetes.AddPools(cmd)
	flags.BoolVar(&o.Manifests, "manifests", false, "print the objects of a server in a cluster, as YAML for kubectl apply -f -")
	flags.StringVar(&o.ServerNamespace, "server-namespace", "", "with --manifests: the namespace `NAME` of the server (default "+defaultServerNamespace+")")
	flags.BoolVar(&o.KeepSecrets, "keep-secrets", false, "with --manifests: leave out the Secrets, as to update a server")
}

// check refuses flags that contradict each other.
func (o *options) check(cmd *cobra.Command) error {
	switch {
	case o.Ephemeral && o.State != "":
		return cmdutil.Usagef(cmd, "--ephemeral keeps no state: leave out --state-dir")
	case o.Drain > maxDrain:
		return cmdutil.Usagef(cmd, "--drain %s: want at most %s", &o.Drain, time.Duration(maxDrain))
	case o.Warm > local.MaxWarm:
		return cmdutil.Usagef(cmd, "--warm %d: want a number from 0 to %d", o.Warm, local.MaxWarm)
	}
	for i, host := range o.Service.Hosts {
		o.Service.Hosts[i] = strings.ToLower(host)
	}
	if o.Manifests {
		return o.checkHosts(cmd)
	}
	if o.KeepSecrets || o.ServerNamespace != "" {
		return cmdutil.Usagef(cmd, "--keep-secrets and --server-namespace need --manifests")
	}
	if err := o.Service.Check(engine.Isolation(o.Resources.Isolation())); err != nil {
		return cmdutil.Usagef(cmd, "%w", err)
	}
	return o.Kubernetes.Check(cmd, o.Resources.Engine())
}

// checkHosts refuses names that no server can have.
func (o *options) checkHosts(cmd *cobra.Command) error {
	for _, host := range o.Service.Hosts {
		if err := localtls.CheckHost(host); err != nil {
			return cmdutil.Usagef(cmd, "%w", err)
		}
	}
	return nil
}

// logger returns the logger of the server.
func (o *options) logger() *slog.Logger {
	level := slog.LevelInfo
	switch f := o.Factory; {
	case f.Verbose():
		level = slog.LevelDebug
	case f.Quiet():
		level = slog.LevelWarn
	}
	return slog.New(slog.NewJSONHandler(o.Factory.IO.Err, &slog.HandlerOptions{Level: level}))
}

// stateDir returns the absolute path of the state directory, or "" if the server keeps no state. If
// the directory may not outlive this server, note is the reason. Otherwise note is "".
func (o *options) stateDir() (dir, note string, err error) {
	switch {
	case o.Ephemeral:
		return "", "", nil
	case o.State != "":
		dir, err = filepath.Abs(o.State)
		return dir, "", err
	}
	return privatedir.MakeLasting("serve", privatedir.State, privatedir.Runtime, privatedir.Temporary)
}

func serveRun(ctx context.Context, opts *options) (err error) {
	logger := opts.logger()
	state, note, err := opts.stateDir()
	if err != nil {
		return fmt.Errorf("the state directory of the server: %w", err)
	}
	if note != "" {
		logger.WarnContext(ctx, "the state directory may not last", "directory", state, "note", note)
	}
	resources := &opts.Resources
	c, err := cloud.Start(ctx, cloud.Options{
		Address: opts.Address, Domain: opts.Domain, State: state, Service: &opts.Service, Logger: logger,
		Engine: engine.Name(resources.Engine()), Isolation: engine.Isolation(resources.Isolation()), Limits: engine.Limits(resources.Limits()),
		Most:       engine.Bounds{CPUs: float64(opts.Most.CPUs), MemoryBytes: int64(opts.Most.Memory)},
		Kubernetes: opts.Kubernetes.Options(), Runsc: resources.Runsc(), PyodideDist: resources.PyodideDist(), Warm: int(opts.Warm), MaxSandboxes: int(opts.MaxSandboxes), VolumeSize: int64(opts.VolumeSize),
	})
	if err != nil {
		return localcloud.Conflict(err)
	}
	defer cmdutil.Closing(c, &err)
	if err := opts.announce(ctx, logger, c, state); err != nil {
		return err
	}
	stopping := cmdutil.StoppingOf(ctx)
	stopping.Allow(time.Duration(opts.Drain))
	select {
	case <-ctx.Done():
		logger.InfoContext(ctx, "the server ends", "reason", context.Cause(ctx).Error(), "drain", opts.Drain.String())
		ctx, cancel := stopping.Context(ctx)
		defer cancel()
		if left := c.Drain(ctx); left > 0 {
			logger.WarnContext(ctx, "requests did not end in time and are cut off", "requests", left)
		}
		return nil
	case <-c.Done():
		return fmt.Errorf("the server can have no more sandboxes: %w; start it again", c.Err())
	}
}

// view is a running server, as -o json shows it.
type view struct {
	URL        string `json:"url"`
	Domain     string `json:"domain"`
	MetricsURL string `json:"metricsURL,omitempty"`
	Engine     string `json:"engine"`
	Isolation  string `json:"isolation"`
	StateDir   string `json:"stateDir,omitempty"`
}

// announce writes the address of the server to stdout, and its properties to the log.
func (o *options) announce(ctx context.Context, logger *slog.Logger, c *cloud.Cloud, state string) error {
	report := c.Report()
	shown := view{URL: c.URL(), Domain: c.Domain(), Engine: string(report.Engine), Isolation: string(report.Isolation), StateDir: state}
	if at := c.MetricsAddress(); at != nil {
		shown.MetricsURL = "http://" + at.String() + "/metrics"
	}
	for _, note := range append(report.Notes, c.StateNotes()...) {
		logger.WarnContext(ctx, "the machine", "note", note)
	}
	if note := c.Python().Note; note != "" {
		logger.WarnContext(ctx, "the Python of sandboxes is incomplete", "note", note)
	}
	if o.Service.PublicCode {
		logger.WarnContext(ctx, "everybody who knows the id of a sandbox can run code in it, because of --public-code")
	}
	logger.InfoContext(ctx, "the server is ready", "url", shown.URL, "domain", shown.Domain, "metrics", shown.MetricsURL, "engine", shown.Engine, "isolation", shown.Isolation, "state", cmp.Or(state, "none"))
	if o.Factory.JSON() {
		return json.NewEncoder(o.Factory.IO.Out).Encode(shown)
	}
	_, err := fmt.Fprintln(o.Factory.IO.Out, shown.URL)
	return err
}
