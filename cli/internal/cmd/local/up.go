package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/shell"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

type upOptions struct {
	Factory    *cmdutil.Factory
	Port       uint16
	OwnPort    bool // --port was given, even with the value 0, which means any free port
	Domain     string
	State      string // the state directory; after it was chosen, "" means that the cloud has none
	Ephemeral  bool
	Background bool
	Ask        bool
	Log        string // the path of the log file that is stderr of this process; "" means that only -v logs to stderr
	Idle       cmdutil.Duration
	Resources  cmdutil.ResourceFlags
	Kubernetes cmdutil.KubernetesFlags
	Images     imageFlags
	VolumeSize cmdutil.Size
	Mounts     allowedMounts
	Warm       uint8
	Together   togetherFlags
}

// flags returns the flags for limits that the user gave, as arguments for another process of
// e2bctl.
func (o *upOptions) flags() []string {
	flags := o.Resources.Arguments()
	if o.VolumeSize > 0 {
		flags = append(flags, "--volume-size", o.VolumeSize.String())
	}
	for _, m := range o.Mounts {
		flags = append(flags, "--allow-mount", m.String())
	}
	if o.Warm != local.DefaultWarm {
		flags = append(flags, "--warm", strconv.Itoa(int(o.Warm)))
	}
	return slices.Concat(flags, o.Kubernetes.Arguments(), o.Together.arguments(), o.Images.arguments())
}

const upHelp = `Run an E2B-compatible cloud on this machine until it is interrupted, and print
the variables that point any E2B SDK at it. It listens on 127.0.0.1 and ::1 only,
for http and https on one port.

Paused sandboxes, with their files, and its key outlive it, in a state directory:
the next one on the same directory has them again. When it ends, by whatever signal,
its running sandboxes end with it; those that pause when their time is over (autoPause)
are paused, unless it is killed. e2bctl local prune removes what is kept. With
--ephemeral nothing outlives it, and its key is a fresh one.

--engine names the engine of sandboxes whose template names none: room, the default
on Linux, docker, the only one on macOS and Windows, wasm or gvisor. --memory, --cpus, --disk
and --pids limit each of its sandboxes; e2bctl doctor says whether this machine can
enforce them. With kubernetes sandboxes are pods of a cluster: see e2bctl serve --help.
--isolation full starts no cloud where
sandboxes would be isolated less than fully. With --volume-size each new volume is a file system of that size, which
takes root, loop devices and mkfs.ext4. Directories of this machine come into a sandbox
only below one of --allow-mount, and only if the sandbox is created with them
(e2bctl create --mount).

Builds of templates fetch container images with the logins of your docker configuration.
--registry-mirror maps the name of a registry to another address, so that a Dockerfile
needs no change. --image-dir lets them read docker-archive:FILE and oci:DIR there, too.

--warm keeps that many sandboxes, each with its Python process, ready for the next
creates, at most 64. Each takes about 9 MB of memory.

With --background it is left running, and its log is written to a file,
which is named on stderr; where one runs already, its variables are
printed, and its --idle stays as it is. With a limit or another flag, that is a conflict.

--ask asks on the terminal before a sandbox reaches a port of a host that its rules allow
without naming it: yes, no, or always. The answer holds for this host and port: yes and no
until the sandbox ends, always for all sandboxes of this state directory, until
e2bctl local ask forget takes it back. A name is looked up after the answer. No answer in 30
seconds is a no, and so is the 33rd question of one sandbox that waits. Sandboxes without
internet access, or with --deny-out 0.0.0.0/0, reach what they are allowed, and no question
is asked.

With a --state-dir and a --port of its own, a second one runs beside the first. Other
commands, like e2bctl create --local, use the first: eval "$(e2bctl local env
--state-dir DIR)" points a shell at the second, and e2bctl local down --state-dir DIR
ends it.`

func newCmdUp(f *cmdutil.Factory) *cobra.Command {
	opts := &upOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the local cloud",
		Long:  upHelp,
		Example: `  e2bctl local up
  e2bctl local up --port 3999 -o json
  e2bctl local up --memory 4GiB --cpus 1
  e2bctl local up --state-dir ~/project/.e2b
  eval "$(e2bctl local up --background)"`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := opts.check(cmd); err != nil {
				return err
			}
			// The process in the background has another current directory.
			if opts.State, err = absolute(opts.State); err != nil {
				return err
			}
			opts.OwnPort = cmd.Flags().Changed("port")
			if err := opts.Images.absolute(); err != nil {
				return err
			}
			if err := cmdutil.AbsoluteKubeconfig(); err != nil {
				return err
			}
			if opts.Background {
				return upBackground(cmd.Context(), opts)
			}
			return upRun(cmd.Context(), opts)
		},
	}
	opts.addFlags(cmd)
	return cmd
}

// check refuses flags that do not go together.
func (o *upOptions) check(cmd *cobra.Command) error {
	hasTerminal := o.Factory.IO.InIsTerminal && o.Factory.IO.ErrIsTerminal
	switch {
	case o.Ephemeral && o.State != "":
		return cmdutil.Usagef(cmd, "--ephemeral keeps no state: leave out --state-dir")
	case o.Warm > local.MaxWarm:
		return cmdutil.Usagef(cmd, "--warm %d: want a number from 0 to %d", o.Warm, local.MaxWarm)
	case o.Ask && o.Background:
		return cmdutil.Usagef(cmd, "--ask asks on the terminal: leave out --background")
	case o.Ask && !hasTerminal:
		return cmdutil.Usagef(cmd, "--ask asks on the terminal, but there is none: create sandboxes with --allow-out and --deny-out instead")
	}
	return o.Kubernetes.Check(cmd, o.Resources.Engine())
}

// addFlags adds the flags of e2bctl local up.
func (opts *upOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Uint16Var(&opts.Port, "port", 0, "listen on `PORT`; 0: any free one")
	flags.StringVar(&opts.Domain, "domain", "", "serve api.`NAME` and PORT-ID.NAME, which lead to this machine; \"\": localhost")
	flags.StringVar(&opts.State, "state-dir", "", "keep paused sandboxes and the key in `DIR`; \"\": e2bctl/cloud in $XDG_STATE_HOME or ~/.local/state")
	flags.BoolVar(&opts.Ephemeral, "ephemeral", false, "keep nothing")
	flags.BoolVar(&opts.Background, "background", false, "return once it is ready, or the one that runs already; end it with e2bctl local down")
	flags.BoolVar(&opts.Ask, "ask", false, "ask on this terminal before a sandbox reaches a host that its\nrules do not name")
	flags.Var(&opts.Idle, "idle", "end this long after its last running sandbox; paused ones are kept")
	flags.StringVar(&opts.Log, "log", "", "write what happens to stderr, which is `FILE`")
	_ = flags.MarkHidden("log") // the process in the background gets this flag
	opts.Resources.Add(cmd)
	opts.Kubernetes.Add(cmd)
	opts.Kubernetes.AddTemplates(cmd)
	opts.Together.add(cmd)
	opts.Images.add(cmd)
	flags.Var(&opts.Mounts, "allow-mount", "let clients show sandboxes this directory of the machine and all\nbelow it, read-only or with :rw changeable, repeatable")
	flags.Var(&opts.VolumeSize, "volume-size", "what each new volume can hold, as root (default no bound)")
	flags.Uint8Var(&opts.Warm, "warm", local.DefaultWarm, "keep `N` sandboxes ready for the next creates; 0: none")
}

func upRun(ctx context.Context, opts *upOptions) (err error) {
	f, ready := opts.Factory, false
	defer func() {
		if err != nil && !ready && opts.Log != "" {
			localcloud.TellFailure(f.IO.Out, cmdutil.Message(err))
		}
	}()
	place, err := opts.place(ctx)
	if err != nil {
		return err
	}
	release, err := place.Claim()
	if err != nil {
		return err
	}
	defer release()

	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(opts.Port)))
	authority, note, err := localcloud.AuthorityDir()
	if err != nil {
		return err
	}
	if opts.State == "" && !opts.Ephemeral { // for the same reason
		if opts.State, note, err = localcloud.StateDir(); err == nil {
			opts.State, err = absolute(opts.State)
		}
		if err != nil {
			return err
		}
	}
	var asking []local.Option
	if opts.Ask {
		asking = append(asking, local.WithAsk(newAsker(f.IO, opts.State).ask))
	}
	cloud, err := local.Start(ctx, append(slices.Concat(opts.Resources.Options(), opts.Images.options(), opts.Mounts.options(), opts.Together.options(), asking), opts.Kubernetes.LocalOption(), local.WithAddress(address), local.WithDomain(opts.Domain), local.WithAuthority(authority),
		local.WithStateDir(opts.State), local.WithLogger(opts.logger()), local.WithMaxVolumeBytes(int64(opts.VolumeSize)), local.WithWarm(int(opts.Warm)))...)
	if err != nil {
		return withPortFlag(localcloud.Conflict(err), opts.Port)
	}
	defer cmdutil.Closing(cloud, &err)
	record := localcloud.Record{URL: cloud.URL(), Key: string(cloud.APIKey()), Domain: cloud.Domain(), State: opts.State, Log: opts.Log, Env: cloud.Env(), PID: os.Getpid(), Since: time.Now().UTC(), Ask: opts.Ask}
	report := cloud.Report()
	record.Engine, record.Isolation, record.IsolationNote = string(report.Engine), string(report.Isolation), report.IsolationNote
	record.NotEnforced = notEnforced(report)
	record.LimitNotes = opts.Resources.NotEnforced(report)
	record.PythonNote, record.StateNotes = report.PythonNote, report.StateNotes
	if note != "" {
		record.StateNotes = append(record.StateNotes, note)
	}
	if err := place.Publish(record); err != nil {
		return err
	}
	ready = true
	if err := opts.announce(record, "local cloud on ", "Ctrl-C ends it and its sandboxes"); err != nil {
		return err
	}
	if err := errors.Join(opts.wait(ctx, cloud), cloud.Close()); err != nil || opts.State == "" || f.Quiet() {
		return err
	}
	state, err := localcloud.ReadState(context.WithoutCancel(ctx), opts.State)
	if err == nil {
		sayKept(f.IO.Err, state)
	}
	return err
}

// withPortFlag returns err. If err means that the port is taken, withPortFlag adds a hint about the
// flag that chooses another port.
func withPortFlag(err error, port uint16) error {
	if failed, ok := errors.AsType[*net.OpError](err); !ok || failed.Op != "listen" || port == 0 {
		return err
	}
	return fmt.Errorf("%w; --port chooses another one, and without it any that is free", err)
}

// maxLog bounds the log file of a cloud in the background.
const maxLog = 64 << 20

// logger returns the logger of the cloud.
func (o *upOptions) logger() *slog.Logger {
	if o.Log == "" {
		return o.Factory.Logger()
	}
	return slog.New(slog.NewTextHandler(&boundedLog{to: o.Factory.IO.Err, left: maxLog}, nil))
}

// boundedLog drops lines when the log is full.
type boundedLog struct {
	to   io.Writer
	left int
}

func (l *boundedLog) Write(line []byte) (int, error) { // a handler makes one call at a time
	switch {
	case l.left <= 0:
		return len(line), nil
	case len(line) >= l.left:
		l.left, line = 0, []byte("the log is full: it starts anew with the next local cloud\n")
	default:
		l.left -= len(line)
	}
	return l.to.Write(line)
}

// announce writes to stdout that the cloud is ready: one line of JSON, or lines for a shell. It
// writes to stderr a text with the state of the cloud and the way to end it. That text also lists
// the shortcomings of the cloud's isolation, limits, Python and state directory.
func (o *upOptions) announce(record localcloud.Record, state, end string) error {
	f := o.Factory
	f.Mask(record.Key)
	write := func() error { return writeExports(f.IO.Out, record) }
	if f.JSON() {
		write = func() error { return json.NewEncoder(f.IO.Out).Encode(record) }
	}
	if err := write(); err != nil || f.Quiet() {
		return err
	}
	fmt.Fprintf(f.IO.Err, "%s%s, engine: %s, isolation: %s; %s\n", state, record.URL, record.Engine, record.Isolation, end)
	f.WarnOfIsolation(record.IsolationNote)
	for _, note := range record.LimitNotes {
		fmt.Fprintln(f.IO.Err, "its limits: "+cmdutil.Printable(note))
	}
	if record.PythonNote != "" {
		fmt.Fprintln(f.IO.Err, "its Python: "+cmdutil.Printable(record.PythonNote))
	}
	for _, note := range record.StateNotes {
		fmt.Fprintln(f.IO.Err, "its state: "+cmdutil.Printable(note))
	}
	return nil
}

// wait returns when ctx ends, the cloud breaks, or the cloud has been idle for long enough. The end
// of ctx is not an error, because a signal to stop is the normal end of a cloud in the foreground.
func (o *upOptions) wait(ctx context.Context, cloud *local.Cloud) (err error) {
	var tick <-chan time.Time
	idle := time.Duration(o.Idle)
	inUse := &sandbox.ListParams{States: []api.SandboxState{api.StateRunning}}
	if o.State == "" {
		inUse = nil // paused sandboxes end with it
	}
	var client *sandbox.Client
	if idle > 0 {
		if client, err = sandbox.NewClient(cloud.Option()); err != nil {
			return err
		}
		defer cmdutil.Closing(client, &err)
		ticker := time.NewTicker(max(idle/20, 50*time.Millisecond))
		defer ticker.Stop()
		tick = ticker.C
	}
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-cloud.Done():
			return fmt.Errorf("the local cloud can have no more sandboxes: %w; e2bctl local up starts another one, which has its templates, volumes and paused sandboxes", cloud.Err())
		case <-tick:
		}
		for _, err := range client.List(ctx, inUse) {
			if err != nil {
				continue
			}
			last = time.Now()
			break
		}
		if time.Since(last) >= idle {
			return nil
		}
	}
}

// place returns the place for the record of the cloud.
func (o *upOptions) place(ctx context.Context) (localcloud.Place, error) {
	if o.OwnPort && o.State != "" {
		return localcloud.FindFree(ctx, o.State)
	}
	return localcloud.FindFor(o.State)
}

// upBackground starts another process that runs the cloud, unless the cloud is running already.
func upBackground(ctx context.Context, opts *upOptions) error {
	place, err := opts.place(ctx)
	if err != nil {
		return err
	}
	record, found, err := place.Background(ctx, localcloud.Settings{Port: opts.Port, Domain: opts.Domain, State: opts.State, Ephemeral: opts.Ephemeral, Engine: opts.Resources.Engine(), Idle: time.Duration(opts.Idle), Flags: opts.flags()})
	if err != nil {
		return err
	}
	state, end := "local cloud on ", "e2bctl local down ends it"
	if opts.State != "" {
		end = "e2bctl local down --state-dir " + shell.Quote(opts.State) + " ends it"
	}
	if found {
		state = "the local cloud already runs on "
	}
	if record.Log != "" {
		end += "; log: " + record.Log
	}
	return opts.announce(record, state, end)
}
