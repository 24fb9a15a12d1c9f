package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
	"github.com/e2bctl/e2bctl/internal/cloud/localtls"
	"github.com/e2bctl/e2bctl/internal/shell"
)

// trustStore is the directory in which a Linux system stores the certificate authorities that an
// administrator adds.
type trustStore struct {
	dir, extension string
	update         []string // the command that makes the system read the authorities in dir
}

// systemStores are the stores of Debian and Ubuntu, of Fedora and RHEL, and of Arch.
var systemStores = []trustStore{
	{"/usr/local/share/ca-certificates", ".crt", []string{"update-ca-certificates", "--fresh"}},
	{"/etc/pki/ca-trust/source/anchors", ".pem", []string{"update-ca-trust"}},
	{"/etc/ca-certificates/trust-source/anchors", ".crt", []string{"update-ca-trust"}},
}

type trustOptions struct {
	IO     *cmdutil.IOStreams
	JSON   bool
	Quiet  bool
	Remove bool
	Dir    string // the directory with the authorities, which has a subdirectory for each domain
	Stores []trustStore
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
			opts.JSON, opts.Quiet = f.JSON(), f.Quiet()
			if opts.Dir, _, err = localcloud.AuthorityDir(); err != nil {
				return err
			}
			return trustRun(cmd.Context(), opts)
		},
	}
	cmd.Flags().BoolVar(&opts.Remove, "remove", false, "no longer trust them")
	return cmd
}

// trustView is a change of the authorities that this machine trusts, as -o json shows it.
type trustView struct {
	Trusted bool     `json:"trusted"` // false: the machine no longer trusts the authorities
	Files   []string `json:"files"`
}

func trustRun(ctx context.Context, opts *trustOptions) error {
	to, err := findStore(opts.Stores)
	if err != nil {
		return err
	}
	act, state := to.add, "trusted: "
	if opts.Remove {
		act, state = to.remove, "no longer trusted: "
	}
	changed, err := act(opts.Dir)
	if len(changed) > 0 && err == nil {
		err = runUpdate(ctx, to.update)
	}
	if err != nil {
		return err
	}
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, trustView{!opts.Remove, append([]string{}, changed...)})
	}
	if opts.Quiet {
		return nil
	}
	if len(changed) == 0 {
		changed = []string{"none was trusted"}
	}
	fmt.Fprintln(opts.IO.Err, state+strings.Join(changed, ", "))
	return nil
}

// runUpdate runs the command of a trust store that makes the system read its authorities again.
func runUpdate(ctx context.Context, command []string) error {
	program, err := hostprogram.FindOfRoot(command[0])
	if err != nil {
		return err
	}
	update := hostprogram.Command(ctx, "", program, command[1:]...)
	if output, err := update.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", update, err, strings.TrimSpace(string(output)))
	}
	return nil
}

// findStore returns the store of this machine.
func findStore(stores []trustStore) (trustStore, error) {
	for _, s := range stores {
		info, err := os.Stat(s.dir)
		if err != nil || !info.IsDir() {
			continue
		}
		if _, err := hostprogram.FindOfRoot(s.update[0]); err == nil {
			return s, nil
		}
	}
	return trustStore{}, errors.New("this machine has neither update-ca-certificates nor update-ca-trust: its list of trusted authorities is not one that e2bctl knows; add the file ca.pem beside that of SSL_CERT_FILE in e2bctl local env to it yourself")
}

// file returns the path of an authority in the store. It is the authority of this user's local
// cloud with the given domain.
func (s trustStore) file(domain string) string {
	return filepath.Join(s.dir, fmt.Sprintf("e2bctl-%d-%s%s", os.Getuid(), domain, s.extension))
}

// add copies the authorities in dir to the store, and returns the paths of the copies.
func (s trustStore) add(dir string) (files []string, err error) {
	authorities, err := fs.Glob(os.DirFS(dir), "*/ca.pem")
	if err == nil && len(authorities) == 0 {
		err = errors.New("there is no certificate authority yet; e2bctl local up makes it")
	}
	if err != nil {
		return nil, err
	}
	var commands []string
	for _, name := range authorities {
		from := filepath.Join(dir, name)
		domain := filepath.Base(filepath.Dir(from))
		to := s.file(domain)
		text, failed := os.ReadFile(from)
		if failed == nil {
			failed = localtls.CheckAuthority(text, domain)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("trust the certificate authority %s: %w; remove the directory, and e2bctl local up makes another", from, failed))
			continue
		}
		if failed := os.WriteFile(to, text, 0o644); failed != nil { //nolint:gosec // every user of the machine reads it
			err = errors.Join(err, failed)
		}
		files = append(files, to)
		commands = append(commands, "sudo install -m 644 "+shell.Quote(from)+" "+shell.Quote(to))
	}
	return files, s.forbidden(err, commands)
}

// remove removes all authorities of this user from the store, and returns the paths of the removed
// files. It also removes the authorities of clouds that no longer exist.
func (s trustStore) remove(string) (files []string, err error) {
	names, err := fs.Glob(os.DirFS(s.dir), filepath.Base(s.file("*")))
	if err != nil {
		return nil, err
	}
	var commands []string
	for _, name := range names {
		file := filepath.Join(s.dir, name)
		files = append(files, file)
		err = errors.Join(err, os.Remove(file))
		commands = append(commands, "sudo rm "+shell.Quote(file))
	}
	return files, s.forbidden(err, commands)
}

// forbidden returns err. If err means that the user may not change the store, forbidden adds the
// commands that an administrator must run.
func (s trustStore) forbidden(err error, commands []string) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	commands = append(commands, "sudo "+strings.Join(s.update, " "))
	return fmt.Errorf("%w; as an administrator, run: %s", err, strings.Join(commands, " && "))
}
