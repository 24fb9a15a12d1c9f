// Package doctor implements e2bctl doctor: checks of the key, the service and this machine.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// doctorLimit bounds one check. clusterLimit bounds one check of a cluster. It is longer, because
// the cluster may have to fetch images.
const (
	doctorLimit  = 20 * time.Second
	clusterLimit = 3 * time.Minute
)

type doctorOptions struct {
	Factory    *cmdutil.Factory
	Local      bool
	Engine     cmdutil.OwnEngine
	Kubernetes cmdutil.KubernetesFlags
	Fix        fixOptions
}

// NewCmdDoctor returns e2bctl doctor.
func NewCmdDoctor(f *cmdutil.Factory) *cobra.Command {
	opts := &doctorOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the service, the key and the isolation on this machine",
		Long: `Check the key, its service, and the abilities of the local cloud on this machine:
how sandboxes are isolated, which limits are enforced, which engines there are, which
features their sandboxes have, and which Python they run. With --engine the sandboxes
of that engine are tried.

With --engine kubernetes a cluster is checked: its version, the namespace, agent-sandbox, the
rights of the user, the runtime classes and the pools. One sandbox is then made there, and removed.

With --fix it is tried whether you get full isolation. If Ubuntu's AppArmor refuses it, a
profile is offered that allows user namespaces to e2bctl, or to a copy in /usr/local/bin
if others than root may write to e2bctl. It is tried again, and a profile that did not
help is removed. This needs sudo; as another user, the command to run is printed.

The status is 1 if a check failed; a warning is not a failure, nor is an engine that is
absent from this machine.`,
		Example: `  e2bctl doctor
  e2bctl doctor --local -o json
  sudo e2bctl doctor --fix
  e2bctl doctor --fix --program ./myagent
  e2bctl doctor --local --engine kubernetes --context kind --program-image IMAGE`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(opts.Kubernetes.Check(cmd, opts.Engine.String()), opts.Fix.check(cmd)); err != nil {
				return err
			}
			if opts.Fix.Fix {
				return fixRun(cmd, opts)
			}
			return doctorRun(cmd.Context(), opts)
		},
	}
	cmdutil.AddEngineFlag(cmd, &opts.Engine)
	opts.Kubernetes.Add(cmd)
	opts.Fix.add(cmd)
	cmd.Flags().BoolVar(&opts.Local, "local", cmdutil.LocalByDefault(), "check only what the local cloud needs (E2BCTL_LOCAL=1)")
	return cmd
}

// The possible results of a check.
const (
	checkOK      = "ok"
	checkWarning = "warning"
	checkFailed  = "failed"
	checkAbsent  = "absent" // this machine lacks the thing that was checked, but that is no fault
)

// check is one line of the doctor's report.
type check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"` // the remedy, if the check found a fault
}

var errUnhealthy = errors.New("at least one check failed")

func doctorRun(ctx context.Context, opts *doctorOptions) error {
	f := opts.Factory
	var checks []check
	if !opts.Local {
		checks = append(checks, checkService(ctx, f)...)
	}
	checks = append(checks, opts.checkLocal(ctx)...)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := writeChecks(f, checks); err != nil {
		return err
	}
	for _, c := range checks {
		if c.Status == checkFailed {
			return errUnhealthy
		}
	}
	return nil
}

func writeChecks(f *cmdutil.Factory, checks []check) error {
	if f.JSON() {
		return cmdutil.WriteJSON(f.IO.Out, checks)
	}
	rows := make([][]string, len(checks))
	for i, c := range checks {
		rows[i] = []string{c.Name, c.Status, c.Detail}
	}
	if err := cmdutil.WriteTable(f.IO.Out, f.IO.OutWidth, []string{"CHECK", "STATUS", "DETAIL"}, rows); err != nil {
		return err
	}
	for _, c := range checks {
		if c.Hint != "" {
			fmt.Fprintf(f.IO.Err, "%s: %s\n", c.Name, cmdutil.Printable(c.Hint))
		}
	}
	return nil
}

// checkService checks the key and its service.
func checkService(ctx context.Context, f *cmdutil.Factory) []check {
	client, err := sandbox.NewClient(append(f.ClientOptions(), sandbox.WithMaxRetries(0))...)
	if errors.Is(err, api.ErrNoAPIKey) {
		return []check{{
			Name: "key", Status: checkWarning, Detail: "none: only the local cloud can be used",
			Hint: "set " + api.EnvAPIKey + " to use a remote service",
		}}
	}
	if err != nil {
		return []check{{Name: "key", Status: checkFailed, Detail: cmdutil.Message(err)}}
	}
	defer func() { _ = client.Close() }() // closing only frees connections
	key := check{Name: "key", Status: checkOK, Detail: "from " + client.API().Sources().APIKey}

	ctx, cancel := context.WithTimeout(ctx, doctorLimit)
	defer cancel()
	service := check{Name: "service", Status: checkOK}
	started := time.Now()
	_, err = client.API().Sandboxes.ListPage(ctx, &api.ListParams{PageSize: 1})
	switch {
	case err == nil:
		service.Detail = fmt.Sprintf("%s (from %s) answered in %v", client.API().BaseURL(), client.API().Sources().BaseURL, time.Since(started).Round(time.Millisecond))
	case errors.Is(err, api.ErrUnauthorized), errors.Is(err, api.ErrForbidden):
		key.Status, key.Detail = checkFailed, key.Detail+", refused by the service"
		key.Hint = "check that the key is one of " + client.API().BaseURL()
		service.Detail = client.API().BaseURL() + " answers"
	default:
		service.Status, service.Detail = checkFailed, cmdutil.Message(err)
		service.Hint = "check the address (" + client.API().BaseURL() + ") and the proxy variables"
	}
	return []check{key, service}
}

// checkLocal starts a local cloud and reports its properties. It does not rely on settings: it
// tests the features of the machine by trying them.
func (o *doctorOptions) checkLocal(ctx context.Context) (checks []check) {
	limit := doctorLimit
	if o.Engine.Kubernetes() {
		limit = clusterLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	note := ""
	switch {
	case o.Engine.Kubernetes():
		var ok bool
		if checks, ok = o.checkCluster(ctx); !ok {
			return checks
		}
	case runtime.GOOS == "linux":
		python := checkPython(ctx)
		note, checks = python.Hint, append(checks, python)
	default:
		checks = append(checks, check{Name: "system", Status: checkWarning, Detail: "the local cloud is built for " + runtime.GOOS + " and not tested there; its only engine there is " + string(local.DefaultEngine)})
	}
	checks = append(checks, checkState(ctx))
	started := time.Now()
	cloud, err := local.Start(ctx, local.WithLogger(o.Factory.Logger()), local.WithEngine(local.Engine(o.Engine.Engine)), o.Kubernetes.LocalOption())
	if err != nil {
		return append(checks, check{Name: "isolation", Status: checkFailed, Detail: cmdutil.Message(err)})
	}
	defer func() {
		if err := cloud.Close(); err != nil {
			checks = append(checks, check{Name: "cleanup", Status: checkFailed, Detail: cmdutil.Message(err)})
		}
	}()
	report := cloud.Report()
	notes := slices.DeleteFunc(report.Notes, func(n string) bool { return n == note }) // the python check has this note
	isolation := check{
		Name: "isolation", Status: checkOK,
		Detail: fmt.Sprintf("%s; %s; started in %v", report.Isolation, users(report.UserIDs), time.Since(started).Round(time.Millisecond)),
		Hint:   strings.Join(notes, "; "),
	}
	if report.Isolation != local.Full {
		isolation.Status = checkWarning
	}
	kernel, limits := checkSandbox(ctx, cloud)
	checks = append(checks, isolation, checkNames(ctx, cloud.Domain()))
	for _, limit := range []struct{ name, value, enforced string }{
		{"network", "", network(report.Egress)},
		{"memory limit", limits.memory, report.Memory}, {"CPU limit", limits.cpus, report.CPU},
		{"process limit", limits.processes, report.Processes}, {"disk limit", limits.disk, report.Disk},
	} {
		c := check{Name: limit.name, Status: checkOK, Detail: limit.enforced}
		if limit.value != "" {
			c.Detail = limit.value + "; " + limit.enforced
		}
		if strings.HasPrefix(limit.enforced, "not ") || strings.HasPrefix(limit.enforced, "proxy only") || strings.HasPrefix(limit.enforced, "none") {
			c.Status = checkWarning
		}
		checks = append(checks, c)
	}
	return append(append(checks, checkEngines(cloud, report)...), kernel)
}

func users(ids int) string {
	if ids == 1 {
		return "root and user are one id inside"
	}
	return fmt.Sprintf("%d user ids inside", ids)
}

// network describes the network access of programs. If egress is "transparent", every program has
// access, and network returns a sentence about that. Otherwise egress is the reason why some
// programs have no access, and network returns egress.
func network(egress string) string {
	if egress == "transparent" {
		return "every program reaches the network through the rules"
	}
	return egress
}

func checkPython(ctx context.Context) check {
	found, err := local.FindPython(ctx)
	if err != nil {
		return check{Name: "python", Status: checkFailed, Detail: cmdutil.Message(err)}
	}
	c := check{Name: "python", Status: checkOK, Detail: fmt.Sprintf("%s, Python %s at %s", found.Level, found.Version, found.Path), Hint: found.Note}
	if found.Note != "" {
		c.Status = checkWarning
	}
	return c
}

// limits are the limits of a sandbox, as the sandbox itself reports them; "" for a limit that it
// does not report.
type limits struct{ memory, cpus, processes, disk string }

// checkSandbox creates a sandbox in the cloud, runs code in its kernel and asks for
// its limits.
func checkSandbox(ctx context.Context, cloud *local.Cloud) (c check, l limits) {
	c = check{Name: "kernel", Status: checkOK}
	started := time.Now()
	var ending time.Time
	err := sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		defer func() { ending = time.Now() }()
		execution, err := sb.RunCode(ctx, "6 * 7", nil)
		if err == nil && execution.Text() != "42" {
			err = fmt.Errorf("6 * 7 returned %q, want 42", execution.Text())
		}
		c.Detail = fmt.Sprintf("first result %v after create, over %s", time.Since(started).Round(time.Millisecond), sb.CodeTransport())
		return errors.Join(err, l.read(ctx, sb))
	}, cloud.Option(), sandbox.WithEnvFile(""))
	if err != nil {
		c.Status, c.Detail = checkFailed, cmdutil.Message(err)
	} else {
		c.Detail += fmt.Sprintf(", ended in %v", time.Since(ending).Round(time.Millisecond))
	}
	return c, l
}

// read asks the sandbox for its limits.
func (l *limits) read(ctx context.Context, sb *sandbox.Sandbox) error {
	info, err := sb.Info(ctx)
	if err != nil {
		return err
	}
	l.memory, l.disk = fmt.Sprintf("%d MiB", info.MemoryBytes>>20), fmt.Sprintf("%d MiB", info.DiskBytes>>20)
	l.cpus = fmt.Sprintf("%d processors", info.CPUs)
	if info.CPUs == 1 {
		l.cpus = "1 processor"
	}
	result, err := sb.Commands.Run(ctx, "ulimit -u", nil)
	if err != nil {
		return err
	}
	l.processes = strings.TrimSpace(result.Stdout) + " processes and threads"
	return nil
}
