package cmdutil

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/sandbox"

	"github.com/e2bctl/e2bctl/api"
)

// Services contains the services that may have a sandbox that the command line names. If the user
// gave neither --local nor an address, the user's local cloud is searched first, and a sandbox that
// it does not have belongs to the remote service. Services connects to each service once, when the
// service is first used. It is not safe for concurrent use.
type Services struct {
	factory       *Factory
	where         Where // the chosen service: LocalRunning with --local
	search        bool  // the local cloud is searched first, if there is one
	local, remote *Connection
}

// askLimit bounds how long the local cloud may take to answer whether it has a
// sandbox.
const askLimit = 5 * time.Second

// Services returns the services that --local and the address select, for a command that names
// sandboxes.
func (f *Factory) Services(cmd *cobra.Command, isLocal bool) (*Services, error) {
	w, err := f.where(cmd, isLocal, LocalRunning)
	if err != nil {
		return nil, err
	}
	named := f.hasAddress() || cmd.Flags().Changed("local") // --local=false is the service, too
	return &Services{factory: f, where: w, search: w == remote && !named}, nil
}

// SandboxOpener returns a function that connects to the service of one sandbox, for a command that
// names it. It takes --local and the address into account.
func (f *Factory) SandboxOpener(cmd *cobra.Command, isLocal bool, id string) (Opener, error) {
	s, err := f.Services(cmd, isLocal)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*Connection, error) {
		conn, err := s.Of(ctx, id)
		for _, other := range []*Connection{s.local, s.remote} {
			if other != nil && other != conn {
				err = errors.Join(err, other.Close())
			}
		}
		return conn, err
	}, nil
}

// WithSandbox calls run with the sandbox of that ID, for a command with --local. It resumes a
// paused sandbox. It renews the sandbox's lifetime while run runs, and the sandbox keeps running
// afterwards.
func (f *Factory) WithSandbox(cmd *cobra.Command, isLocal bool, id string, run func(context.Context, *sandbox.Sandbox) error) (err error) {
	open, err := f.SandboxOpener(cmd, isLocal, id)
	if err != nil {
		return err
	}
	conn, err := open(cmd.Context())
	if err != nil {
		return err
	}
	defer Closing(conn, &err)
	sb, err := conn.Connect(cmd.Context(), id, sandbox.WithExpiry(sandbox.Expiry{Renew: true}))
	if err != nil {
		return err
	}
	defer Closing(sb, &err) // it only disconnects
	return run(cmd.Context(), sb)
}

// Of returns the connection to the service that has the sandbox. The connection remains open until
// Close.
func (s *Services) Of(ctx context.Context, id string) (*Connection, error) {
	if s.where == LocalRunning {
		return s.open(ctx, LocalRunning, &s.local)
	}
	isLocal := s.hasLocal(ctx, id)
	if !isLocal {
		conn, err := s.open(ctx, remote, &s.remote)
		if s.local == nil || !errors.Is(err, api.ErrNoAPIKey) {
			return conn, err
		}
		// Without a key, the sandbox can only belong to the local cloud. The error of that cloud has the reason
		// for the sandbox's end.
	}
	s.factory.usesRunning = true
	return s.local, nil
}

func (s *Services) open(ctx context.Context, w Where, conn **Connection) (*Connection, error) {
	if *conn != nil {
		return *conn, nil
	}
	opened, err := s.factory.open(ctx, w, &ResourceFlags{})
	*conn = opened
	return opened, err
}

// hasLocal reports whether the user's local cloud has the sandbox. It returns false if no local
// cloud is running.
func (s *Services) hasLocal(ctx context.Context, id string) bool {
	if !s.search {
		return false
	}
	if _, err := s.open(ctx, LocalRunning, &s.local); err != nil {
		s.search = false // usually none is running
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	_, err := s.local.Info(ctx, id)
	return err == nil
}

// Close closes the connections.
func (s *Services) Close() error {
	var errs []error
	for _, conn := range []*Connection{s.local, s.remote} {
		if conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	return errors.Join(errs...)
}
