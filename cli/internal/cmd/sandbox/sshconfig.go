package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/sshserver"
	"github.com/e2bctl/e2bctl/internal/privatedir"
	"github.com/e2bctl/e2bctl/internal/shell"
)

// sshHostPrefix begins the names that ssh has for sandboxes. The ID follows.
const sshHostPrefix = "e2b-"

type sshConfigOptions struct {
	IO       *cmdutil.IOStreams
	JSON     bool
	Services *cmdutil.Services
	IDs      []string
	Proxy    []string // the command that ssh runs, without the name of the host
	User     string
}

// NewCmdSSHConfig returns e2bctl ssh-config.
func NewCmdSSHConfig(f *cmdutil.Factory) *cobra.Command {
	opts := &sshConfigOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:        "ssh-config [<id>...]",
		SuggestFor: []string{"ssh", "scp", "sftp"},
		Short:      "Print the configuration with which ssh reaches sandboxes",
		Long: `Print a configuration for ssh, scp, sftp, rsync and editors that use ssh. With it, a
sandbox is the host e2b-<id>. Without an ID it is for all sandboxes, also those that do not
exist yet: append it to ~/.ssh/config once. Nothing has to run in a sandbox, and no port is
open: ssh starts e2bctl ssh-proxy, which uses the service as all commands do.

The keys are made for this the first time, in e2bctl's own state directory. E2B_API_KEY is
not in the configuration: ssh needs it in its environment, or --env-file here.`,
		Example: `  e2bctl ssh-config >>~/.ssh/config && ssh e2b-"$ID"
  e2bctl ssh-config "$ID" >config && scp -F config report.pdf e2b-"$ID":
  ssh -F config -L 8080:localhost:3000 root@e2b-"$ID"`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.IDs = f.JSON(), args
			if opts.Proxy, err = proxyCommand(cmd.Flags(), isLocal); err != nil {
				return err
			}
			if opts.Services, err = f.Services(cmd, isLocal); err != nil {
				return err
			}
			return sshConfigRun(cmd.Context(), opts)
		},
	}
	cmd.Flags().StringVarP(&opts.User, "user", "u", "user", "log in as user `NAME`, unless ssh names another")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

// proxyCommand returns the words of the command that ssh runs: this program, and the flags that
// select the service.
func proxyCommand(flags *pflag.FlagSet, isLocal bool) (words []string, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	words = []string{program, "ssh-proxy"}
	for _, name := range []string{"api-url", "domain", "env-file", "no-env-file", "local"} {
		flag := flags.Lookup(name)
		switch {
		case name == "local" && isLocal:
			words = append(words, "--local") // also if only the environment says so
		case !flag.Changed:
		case name == "env-file" && flag.Value.String() != "":
			path, err := filepath.Abs(flag.Value.String()) // ssh runs in any directory
			if err != nil {
				return nil, err
			}
			words = append(words, "--env-file", path)
		case flag.Value.Type() == "bool":
			words = append(words, "--"+name+"="+flag.Value.String())
		default:
			words = append(words, "--"+name, flag.Value.String())
		}
	}
	return words, nil
}

// sshConfigView is the configuration as -o json shows it.
type sshConfigView struct {
	Hosts        []string `json:"hosts"`
	IdentityFile string   `json:"identityFile"`
	Config       string   `json:"config"`
}

func sshConfigRun(ctx context.Context, opts *sshConfigOptions) (err error) {
	defer cmdutil.Closing(opts.Services, &err)
	view := sshConfigView{Hosts: []string{sshHostPrefix + "*"}}
	for i, id := range opts.IDs {
		conn, err := opts.Services.Of(ctx, id)
		if err != nil {
			return err
		}
		info, err := conn.Info(ctx, id)
		if err != nil {
			return err
		}
		view.Hosts = append(view.Hosts[:i], sshHostPrefix+info.ID)
	}
	keys, err := sshKeys()
	if err != nil {
		return err
	}
	view.IdentityFile = keys.ClientFile
	if view.Config, err = sshConfig(view.Hosts, opts.User, opts.Proxy, keys); err != nil {
		return err
	}
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, view)
	}
	_, err = fmt.Fprint(opts.IO.Out, view.Config)
	return err
}

// sshKeys returns the keys of this user.
func sshKeys() (sshserver.Keys, error) {
	dir, err := privatedir.Make("ssh", privatedir.State)
	if err != nil {
		return sshserver.Keys{}, fmt.Errorf("finding a directory for the keys of ssh: %w", err)
	}
	return sshserver.OpenKeys(dir)
}

// sshConfig returns the configuration for hosts.
func sshConfig(hosts []string, user string, proxy []string, keys sshserver.Keys) (string, error) {
	for _, word := range append(append([]string{user, keys.ClientFile, keys.KnownHosts}, hosts...), proxy...) {
		if strings.ContainsAny(word, "\"\n\r\x00") || strings.Contains(word, "${") {
			return "", fmt.Errorf("a configuration of ssh cannot contain %q", word)
		}
	}
	var command []string
	for _, word := range proxy {
		command = append(command, strings.ReplaceAll(shellWord(word), "%", "%%"))
	}
	command = append(command, hostWord())
	return fmt.Sprintf(`Host %s
  User %s
  ProxyCommand %s
  HostKeyAlias %s
  IdentityFile %s
  IdentitiesOnly yes
  UserKnownHostsFile %s
  StrictHostKeyChecking yes
`, strings.Join(hosts, " "), sshWord(user), strings.Join(command, " "), sshserver.HostAlias, sshWord(keys.ClientFile), sshWord(keys.KnownHosts)), nil
}

// sshWord quotes a value of the configuration, in which ssh replaces what follows a %.
func sshWord(word string) string {
	return `"` + strings.ReplaceAll(filepath.ToSlash(word), "%", "%%") + `"`
}

// shellWord quotes a word for the shell with which ssh runs the command.
func shellWord(word string) string {
	if runtime.GOOS == "windows" {
		return `"` + word + `"`
	}
	return shell.Quote(word)
}

// hostWord is the name of the host as the user gave it to ssh.
func hostWord() string {
	if runtime.GOOS == "windows" {
		return `"%n"`
	}
	return `'%n'`
}
