package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/ci"
	"github.com/e2bctl/e2bctl/sandbox"
)

// NewSandboxFlags are the flags that describe a sandbox to create.
type NewSandboxFlags struct {
	Template string
	// the time after which the sandbox ends; 0 means a lease that is renewed while the command runs
	Lifetime  Duration
	idle      Duration       // the time without use after which the sandbox ends; 0 means no such limit
	End       sandbox.Expiry // the action at the end of the lifetime
	Network   NetworkFlags
	Resources ResourceFlags

	image    string
	metadata KeyValues
	noCI     bool
	id       idFlags
	packages []string
	volumes  volumeMounts
	mounts   hostMounts
	given    *pflag.FlagSet // all flags of the command
	all      *pflag.FlagSet // flags that do not apply to an existing sandbox
}

// Add adds the flags to cmd. lifetime describes how long the sandbox lives.
func (n *NewSandboxFlags) Add(cmd *cobra.Command, lifetime string) {
	n.all = pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	n.all.StringVarP(&n.Template, "template", "t", "", "create the sandbox from template `NAME`")
	n.addOne()
	n.add(cmd, lifetime)
}

// AddMany works like Add, but is for a command that creates any number of sandboxes. It does not
// add the flags that write an ID to a file, because there is no single ID. It does not add --idle,
// because such a command ends unused sandboxes itself.
func (n *NewSandboxFlags) AddMany(cmd *cobra.Command, lifetime string) {
	n.all = pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	n.all.StringVarP(&n.Template, "template", "t", "", "create the sandboxes from template `NAME`")
	n.add(cmd, lifetime)
}

// AddNew works like Add, but is for a command that normally uses an existing sandbox. With the flag
// --new, which names a template, the command creates a new sandbox instead.
func (n *NewSandboxFlags) AddNew(cmd *cobra.Command, lifetime string) {
	n.all = pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	n.all.StringVar(&n.Template, "new", "", "create a sandbox from `TEMPLATE`")
	n.addOne()
	n.add(cmd, lifetime)
}

// addOne adds the flags of a command that creates one sandbox.
func (n *NewSandboxFlags) addOne() {
	n.id.add(n.all)
	n.all.Var(&n.idle, "idle", "end the sandbox when nothing has used it for this long;\nwithout --lifetime it then lives as long as it is used;\nneeds a local cloud")
}

func (n *NewSandboxFlags) add(cmd *cobra.Command, lifetime string) {
	n.all.StringVar(&n.image, "image", "", "begin with the files of container image `REF`, without a\ntemplate; needs a local cloud")
	n.all.Var(&n.Lifetime, "lifetime", lifetime)
	n.all.VarP(&n.metadata, "metadata", "m", "metadata of the sandbox, repeatable")
	n.all.BoolVar(&n.noCI, "no-ci-metadata", false, "without metadata about the CI job (e2bctl help ci)")
	n.all.Var(&n.volumes, "volume", "show a volume as a directory of the sandbox, repeatable")
	n.all.Var(&n.mounts, "mount", "show a directory of this machine, repeatable; a running local\ncloud must allow it (local up --allow-mount)")
	n.Network.add(n.all)
	n.Resources.mounts, n.Resources.ofSandbox = &n.mounts, true
	cmd.Flags().AddFlagSet(n.all)
	n.given = cmd.Flags()
	n.Resources.Add(cmd)
	n.all.AddFlagSet(n.Resources.flags())
	cmd.Flags().StringArrayVar(&n.packages, "package", nil, "install the Python package `NAME` first, repeatable")
}

// Changed returns the name of a flag for new sandboxes that the user gave, or "" if there is none.
func (n *NewSandboxFlags) Changed() string {
	name := ""
	n.all.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && name == "" {
			name = flag.Name
		}
	})
	return name
}

// NeedsOwnCloud returns the name of a flag that the user gave and that requires a local cloud of
// the command's own. It returns "" if there is none.
func (n *NewSandboxFlags) NeedsOwnCloud() string {
	if len(n.mounts) > 0 {
		return "mount"
	}
	if flag := n.Resources.first(); flag != nil {
		return flag.Name
	}
	return ""
}

// Mounts returns the directories of this machine that the sandbox sees.
func (n *NewSandboxFlags) Mounts() []sandbox.Mount { return n.mounts }

// Options returns the options for the new sandbox. Commands use it if they do not call Create.
func (n *NewSandboxFlags) Options() []sandbox.CreateOption {
	options := []sandbox.CreateOption{sandbox.WithTemplate(n.Template), sandbox.WithImage(n.image)}
	expiry := n.End
	expiry.After, expiry.Idle = time.Duration(n.Lifetime), time.Duration(n.idle)
	if n.idle > 0 && !n.lifetimeGiven() {
		expiry.After = 0 // a default of the command would end it earlier
	}
	if expiry != (sandbox.Expiry{}) {
		options = append(options, sandbox.WithExpiry(expiry))
	}
	if metadata := n.labelled(); len(metadata) > 0 {
		options = append(options, sandbox.WithMetadata(metadata))
	}
	options = append(options, n.Resources.sandboxOptions()...)
	for _, m := range n.mounts {
		options = append(options, sandbox.WithMount(m))
	}
	for _, v := range n.volumes {
		options = append(options, sandbox.WithVolume(v.Name, v.Path))
	}
	return append(options, n.Network.options()...)
}

// Idle reports whether the sandbox has an idle limit.
func (n *NewSandboxFlags) Idle() bool { return n.idle != 0 }

// lifetimeGiven reports whether the user gave the lifetime, under any of its names.
func (n *NewSandboxFlags) lifetimeGiven() (given bool) {
	n.given.Visit(func(flag *pflag.Flag) { given = given || flag.Value == &n.Lifetime })
	return given
}

// labelled returns the metadata of the sandbox, from the command line and the CI job.
func (n *NewSandboxFlags) labelled() map[string]string {
	job, ok := ci.Find(os.Getenv)
	if !ok || n.noCI {
		return n.metadata
	}
	return n.metadata.Over(job.Labels())
}

// Create creates the sandbox on conn, with further options, and writes its ID to the files of the
// flags. If the files cannot be opened, it creates no sandbox. If they cannot be written, it kills
// the sandbox.
func (n *NewSandboxFlags) Create(ctx context.Context, conn *Connection, further ...sandbox.CreateOption) (*sandbox.Sandbox, error) {
	files, err := n.id.open()
	if err != nil {
		return nil, err
	}
	defer files.close()
	sb, err := conn.Create(ctx, append(n.Options(), further...)...)
	if err != nil {
		return nil, n.explain(err)
	}
	if err := files.write(sb.ID()); err != nil {
		return nil, WithClose(fmt.Errorf("the sandbox is killed: %w", err), sb)
	}
	return sb, nil
}

// explain adds a hint to err if a service may have refused metadata that comes from the CI job and
// not from the user.
func (n *NewSandboxFlags) explain(err error) error {
	if errors.Is(err, api.ErrInvalidArgument) && len(n.labelled()) > len(n.metadata) && strings.Contains(err.Error(), "metadata") {
		return &refusedLabels{err}
	}
	return err
}

// refusedLabels is a service's error for a new sandbox with metadata about the CI job.
type refusedLabels struct{ error }

func (r *refusedLabels) Unwrap() error { return r.error }

// Hint implements [HintedError].
func (r *refusedLabels) Hint() string {
	return "Some of its metadata is about the CI job: --no-ci-metadata leaves that out."
}

// Install installs the packages, and writes its progress to progress.
func (n *NewSandboxFlags) Install(ctx context.Context, sb *sandbox.Sandbox, progress io.Writer) error {
	if len(n.packages) == 0 {
		return nil
	}
	fmt.Fprintf(progress, "installing %s\n", Printable(strings.Join(n.packages, ", ")))
	_, err := sb.Packages.Install(ctx, n.packages, nil)
	return err
}
