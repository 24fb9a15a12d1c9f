package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type portForwardOptions struct {
	IO      *cmdutil.IOStreams
	JSON    bool
	Quiet   bool
	Open    cmdutil.Opener
	ID      string
	Ports   []portPair
	Address string
}

// portPair is a port of this machine and the port of the sandbox to which it is forwarded. A port
// of 0 on this machine means any free port.
type portPair struct{ local, remote int }

// NewCmdPortForward returns e2bctl port-forward.
func NewCmdPortForward(f *cmdutil.Factory) *cobra.Command {
	opts := &portForwardOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:        "port-forward <id> [<local>:]<port>...",
		Aliases:    []string{"forward"},
		SuggestFor: []string{"proxy", "ports", "tunnel"},
		Short:      "Make ports of a sandbox reachable on this machine",
		Long: `Listen on ports of this machine and connect whoever connects there with ports of a
sandbox, until e2bctl is interrupted or the sandbox ends. 3000 is the same port on both
sides, 8080:3000 is port 3000 of the sandbox on 8080 of this machine, and :3000, or 0:3000,
is on a port that is free. It works for programs that cannot resolve the names of ports, such as
3000-<id>.localhost in plain Python or Node.

The sandbox is kept alive meanwhile, and one that is paused is resumed. A pause breaks
connections; new ones work once it runs again. Each address is printed when all are ready.`,
		Example: `  e2bctl port-forward "$ID" 3000
  e2bctl port-forward "$ID" 8080:3000 :5432
  e2bctl port-forward "$ID" :8888 -o json`,
		Args: cmdutil.Wants("the ID of a sandbox and ports", cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.Quiet, opts.ID = f.JSON(), f.Quiet(), args[0]
			if net.ParseIP(opts.Address) == nil && opts.Address != "localhost" {
				return cmdutil.Usagef(cmd, "--address %s: want an IP address of this machine, or localhost", opts.Address)
			}
			for _, text := range args[1:] {
				pair, err := parsePorts(text)
				if err != nil {
					return cmdutil.Usagef(cmd, "%s: %w", text, err)
				}
				opts.Ports = append(opts.Ports, pair)
			}
			if opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID); err != nil {
				return err
			}
			return portForwardRun(cmd.Context(), opts)
		},
	}
	cmd.Flags().StringVar(&opts.Address, "address", "127.0.0.1", "listen on this `ADDRESS`; whoever reaches it reaches the ports")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

// parsePorts reads PORT, LOCAL:PORT, :PORT or 0:PORT.
func parsePorts(text string) (p portPair, err error) {
	local, remote, both := strings.Cut(text, ":")
	if !both {
		remote = local
	}
	if p.remote, err = parsePort(remote); err == nil && local != "" && local != "0" {
		p.local, err = parsePort(local)
	}
	return p, err
}

func parsePort(text string) (int, error) {
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 {
		return 0, errors.New("want PORT or LOCAL:PORT, with numbers from 1 to 65535")
	}
	return port, nil
}

// forwardView is a port that is forwarded, as -o json shows it.
type forwardView struct {
	Address string `json:"address"`
	Port    int    `json:"port"`
}

func portForwardRun(ctx context.Context, opts *portForwardOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	sb, err := conn.Connect(ctx, opts.ID, sandbox.WithExpiry(sandbox.Expiry{Renew: true}))
	if err != nil {
		return err
	}
	defer cmdutil.Closing(sb, &err) // ends the forwarding; the sandbox keeps running
	broke := make(chan struct{}, 1)
	views := make([]forwardView, len(opts.Ports))
	for i, ports := range opts.Ports {
		f, err := sb.Forward(ctx, net.JoinHostPort(opts.Address, strconv.Itoa(ports.local)), ports.remote, &sandbox.ForwardParams{
			Failed: func(err error) {
				fmt.Fprintf(opts.IO.Err, "e2bctl: port-forward: %s\n", cmdutil.Message(err))
				select {
				case broke <- struct{}{}:
				default:
				}
			},
		})
		if err != nil {
			return err
		}
		views[i] = forwardView{f.Addr().String(), ports.remote}
	}
	if err := opts.ready(views); err != nil {
		return err
	}
	return untilEnd(ctx, conn, opts.ID, broke)
}

// ready prints the forwarded ports: from now on, they accept connections.
func (o *portForwardOptions) ready(views []forwardView) error {
	if host, err := netip.ParseAddr(o.Address); err == nil && !host.IsLoopback() && !o.Quiet {
		fmt.Fprintf(o.IO.Err, "Whoever reaches %s reaches these ports of the sandbox.\n", o.Address)
	}
	if o.JSON {
		return cmdutil.WriteJSONLine(o.IO.Out, views)
	}
	for _, view := range views {
		line := view.Address
		if !o.Quiet {
			line = fmt.Sprintf("%s leads to port %d of %s", view.Address, view.Port, o.ID)
		}
		if _, err := fmt.Fprintln(o.IO.Out, cmdutil.Printable(line)); err != nil {
			return err
		}
	}
	return nil
}

// askEvery is the interval between requests that check whether the sandbox has ended.
const askEvery = 5 * time.Second

// untilEnd waits until a sandbox has ended, and returns the reason as an error. If ctx ends first,
// it returns the cause of ctx. When a connection breaks, it checks the sandbox at once.
func untilEnd(ctx context.Context, conn *cmdutil.Connection, id string, broke <-chan struct{}) error {
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-broke:
		case <-ticker.C:
		}
		// Other errors are ignored: the service may be unreachable for a moment.
		if _, err := conn.Info(ctx, id); errors.Is(err, sandbox.ErrGone) {
			return ended(err)
		}
	}
}

// ended returns err for a command whose sandbox existed when the command began. From a
// [*sandbox.GoneError] it removes the service's answer, because that only repeats that no sandbox
// has the ID. It returns other errors unchanged.
func ended(err error) error {
	if gone, ok := errors.AsType[*sandbox.GoneError](err); ok {
		return &sandbox.GoneError{ID: gone.ID, State: gone.State, Reason: gone.Reason, At: gone.At}
	}
	return err
}
