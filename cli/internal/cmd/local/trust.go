package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/shell"
)

// store is where a system keeps the authorities that an administrator adds.
type store struct {
	dir, extension string
	update         []string // the command that makes the system read them
}

// systemStores are those of Debian and Ubuntu, of Fedora and RHEL, and of Arch.
var systemStores = []store{
	{"/usr/local/share/ca-certificates", ".crt", []string{"update-ca-certificates", "--fresh"}},
	{"/etc/pki/ca-trust/source/anchors", ".pem", []string{"update-ca-trust"}},
	{"/etc/ca-certificates/trust-source/anchors", ".crt", []string{"update-ca-trust"}},
}

type trustOptions struct {
	IO     *cmdutil.IOStreams
	Quiet  bool
	Remove bool
	Dir    string // of the authorities, a directory for each domain
	Stores []store
}

func newCmdTrust(f *cmdutil.Factory) *cobra.Command {
	opts := &trustOptions{IO: f.IO, Stores: systemStores}
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Make this machine trust the certificates of the local cloud",
		Long: `Add the certificate authorities of your local clouds to those that this machine
trusts, for programs that e2bctl local env does not reach. Each
can certify nothing but its cloud's domain, localhost and loopback addresses. This
needs root; as another user, the command prints what to run. Node does not read the
machine's list unless it runs with --use-system-ca.`,
		Example: `  e2bctl local trust
  e2bctl local trust --remove`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			opts.Quiet = f.Quiet()
			if opts.Dir, err = localcloud.AuthorityDir(); err != nil {
				return err
			}
			return trustRun(cmd.Context(), opts)
		},
	}
	cmd.Flags().BoolVar(&opts.Remove, "remove", false, "no longer trust them")
	return cmd
}

func trustRun(ctx context.Context, opts *trustOptions) error {
	authorities, err := filepath.Glob(filepath.Join(opts.Dir, "*", "ca.pem"))
	if err != nil {
		return err
	}
	if len(authorities) == 0 {
		return errors.New("there is no certificate authority yet; e2bctl local up makes it")
	}
	to, err := findStore(opts.Stores)
	if err != nil {
		return fmt.Errorf("%w; add %s to what your programs trust yourself", err, strings.Join(authorities, " and "))
	}
	var commands []string // for an administrator
	for _, authority := range authorities {
		if err = to.change(authority, opts.Remove); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		commands = append(commands, to.command(authority, opts.Remove))
	}
	if err != nil {
		commands = append(commands, "sudo "+strings.Join(to.update, " "))
		return fmt.Errorf("%w; as an administrator, run: %s", err, strings.Join(commands, " && "))
	}
	update := exec.CommandContext(ctx, to.update[0], to.update[1:]...)
	if output, err := update.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", update, err, strings.TrimSpace(string(output)))
	}
	if !opts.Quiet {
		state := "trusted"
		if opts.Remove {
			state = "no longer trusted"
		}
		fmt.Fprintln(opts.IO.Err, state+": "+strings.Join(authorities, ", "))
	}
	return nil
}

// findStore returns the store of this machine.
func findStore(stores []store) (store, error) {
	for _, s := range stores {
		info, err := os.Stat(s.dir)
		if err != nil || !info.IsDir() {
			continue
		}
		if _, err := exec.LookPath(s.update[0]); err == nil {
			return s, nil
		}
	}
	return store{}, errors.New("this machine has neither update-ca-certificates nor update-ca-trust: its list of trusted authorities is not one that e2bctl knows")
}

// file returns the place of an authority in the store: one for each user and domain.
func (s store) file(authority string) string {
	domain := filepath.Base(filepath.Dir(authority))
	return filepath.Join(s.dir, fmt.Sprintf("e2bctl-%d-%s%s", os.Getuid(), domain, s.extension))
}

// change adds an authority to the store, or removes it.
func (s store) change(authority string, remove bool) error {
	if remove {
		if err := os.Remove(s.file(authority)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	text, err := os.ReadFile(authority)
	if err != nil {
		return err
	}
	return os.WriteFile(s.file(authority), text, 0o644) //nolint:gosec // every user of the machine reads it
}

// command is what an administrator runs for change.
func (s store) command(authority string, remove bool) string {
	if remove {
		return "sudo rm -f " + shell.Quote(s.file(authority))
	}
	return "sudo install -m 644 " + shell.Quote(authority) + " " + shell.Quote(s.file(authority))
}
