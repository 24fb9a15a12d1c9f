//go:build linux

package reexec

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/inside"
	"github.com/e2bctl/e2bctl/internal/cloud/envd"
	"github.com/e2bctl/e2bctl/internal/cloud/interpreter"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

const (
	defaultUser = "user"
	kernelUser  = "root" // as on the service, whose kernels use the default user's home

	headerDeadline = 10 * time.Second
	idleDeadline   = 640 * time.Second // longer than the server keeps an idle connection
	maxHeader      = 64 << 10
)

func init() { inside.Serve(serve) }

// serve runs the envd of a sandbox. When it returns, the sandbox ends with all its processes
// and files, so serve need not close anything.
func serve(ctx context.Context, g *inside.Guest) error {
	var config guest.Config
	if err := json.Unmarshal(g.Config, &config); err != nil {
		return fmt.Errorf("reexec: configuration of the sandbox: %w", err)
	}
	config.Envs = defaults(config.Envs)
	logger := newLogger(g.Log)
	if config.Image != "" {
		if err := settle(&config, g); err != nil {
			logger.WarnContext(ctx, "the image is not as its commands expect it", "image", config.Image, "error", err)
		}
	}
	homes := make(map[string]string)
	for _, u := range g.Users {
		homes[u.Name] = u.Home
	}
	python, err := wasm(&config, g)
	if err != nil {
		return fmt.Errorf("reexec: %w", err)
	}
	memory := &child.Memory{Limit: config.MemoryBytes, Kills: g.OOMKills}
	options := daemonOptions(&config, g, homes, memory, logger)
	user, credential := kernelUser, (*syscall.Credential)(nil)
	if python != nil {
		options.NoProcesses = guest.NoProcesses
		user, credential = defaultUser, userCredential(g)
	}
	var kernels *interpreter.Server
	options.KernelsBusy = func() bool { return kernels.Busy() } // called by requests only, which come later
	daemon, err := newDaemon(ctx, options, logger)
	if err != nil {
		return err
	}
	kernels, err = interpreter.New(interpreter.Options{
		Python: config.Python, Wasm: python, Credential: credential,
		Environ: func() ([]string, error) { return daemon.Environ(user, nil) },
		Dir:     homes[defaultUser], Token: daemon.Token, Scratch: g.Run, Memory: memory, Logger: logger.With("logger", "kernel"),
		Warm: warm(&config, g),
	})
	if err != nil {
		return err
	}
	if err := mark(&config, g.Root, g.Run); err != nil {
		return fmt.Errorf("reexec: write the files that programs know a sandbox by: %w", err)
	}
	if err := markKernel(homes[kernelUser], kernels.DefaultID()); err != nil { // the home may be any kind of file
		logger.WarnContext(ctx, "the id of the default kernel could not be written", "error", err)
	}

	ended, err := listen(g, daemon, kernels, logger)
	if err != nil {
		return err
	}
	others := &relay{guest: g, ended: ended}
	if err := others.listen(config.CloudPort); err != nil {
		return err
	}
	go func() { ended <- child.Reap(ctx) }()
	g.OnBecome(func(raw json.RawMessage) error { return become(ctx, raw, g, daemon, others, logger) })
	if err := g.Ready(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-ended:
		return err
	}
}

// daemonOptions returns the options of a sandbox's envd.
func daemonOptions(config *guest.Config, g *inside.Guest, homes map[string]string, memory *child.Memory, logger *slog.Logger) envd.Options {
	workdir := config.Workdir
	if workdir == guest.UserWorkdir {
		workdir = homes[defaultUser]
	}
	options := envd.Options{
		Users: g.Users, DefaultUser: cmp.Or(config.User, defaultUser), AnyUser: g.AnyUser, AnyOwner: config.Contained && os.Geteuid() == 0, DefaultWorkdir: workdir, Scratch: g.Temp, Token: config.AccessToken,
		System: environment(config, g.Egress, g.Temp, isFile), Envs: config.Envs, Path: config.Path,
		MemoryBytes: config.MemoryBytes, CPUs: config.CPUs, Memory: memory, MemoryUse: g.MemoryUse, Terminal: g.Terminal, Logger: logger.With("logger", "process"),
	}
	if config.Contained {
		options.OneUser = fmt.Sprintf("all processes of its container are %d:%d, whom local.DockerParams.User names, or else the last USER of the template where local.DockerParams.CapDrop leaves root too little", g.Users[0].UID, g.Users[0].GID)
	}
	return options
}

// newDaemon returns the envd of a sandbox. The sandbox starts even if the account of its default
// user was removed. If the sandbox did not start, nobody could reach the files of a paused sandbox
// that has lost this account.
func newDaemon(ctx context.Context, o envd.Options, logger *slog.Logger) (*envd.Server, error) {
	daemon, err := envd.New(o)
	if err != nil && o.DefaultUser != defaultUser && !errors.Is(err, envd.ErrNoID) {
		logger.WarnContext(ctx, "the default user is gone", "user", o.DefaultUser, "error", err)
		o.DefaultUser = defaultUser
		return envd.New(o)
	}
	return daemon, err
}

// listen serves the ports of the sandbox. Each server sends its first error to the channel ended.
// The buffer of ended has space for these errors and two more.
func listen(g *inside.Guest, daemon *envd.Server, kernels *interpreter.Server, logger *slog.Logger) (ended chan error, err error) {
	handlers := map[int]http.Handler{
		protocol.PortEnvd:        daemon.Handler(),
		protocol.PortInterpreter: kernels.Interpreter(),
		protocol.PortJupyter:     kernels.Jupyter(),
	}
	if g.Egress {
		handlers[guest.ProxyPort] = network.NewProxy(g.DialEgress)
	}
	ended = make(chan error, len(handlers)+2)
	for port, handler := range handlers {
		listener, err := g.Listen(port)
		if err != nil {
			return nil, err
		}
		server := &http.Server{
			Handler: handler, ReadHeaderTimeout: headerDeadline, IdleTimeout: idleDeadline, MaxHeaderBytes: maxHeader,
			ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		}
		go func() { ended <- server.Serve(listener) }()
	}
	return ended, nil
}

// become gives a restored sandbox a new configuration. The configuration affects processes that
// start later, but not running processes.
func become(ctx context.Context, raw json.RawMessage, g *inside.Guest, daemon *envd.Server, others *relay, logger *slog.Logger) error {
	var config guest.Config
	if err := json.Unmarshal(raw, &config); err != nil {
		return fmt.Errorf("reexec: configuration of the sandbox: %w", err)
	}
	if err := daemon.Become(config.AccessToken, environment(&config, g.Egress, g.Temp, isFile), defaults(config.Envs)); err != nil {
		return err
	}
	if err := others.listen(config.CloudPort); err != nil { // a program in the sandbox may have the port
		logger.WarnContext(ctx, "programs may not reach other sandboxes by names below localhost", "error", err)
	}
	return mark(&config, g.Root, g.Run)
}

// newLogger returns the logger of envd. It writes all messages to the log of the sandbox. It
// also writes warnings and errors to the log of the local cloud.
func newLogger(sandbox io.Writer) *slog.Logger {
	const longest = 1 << 10 // maximum length of an attribute's text
	return slog.New(slog.NewMultiHandler(
		slog.NewJSONHandler(sandbox, &slog.HandlerOptions{
			Level: slog.LevelDebug,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				switch v := a.Value.Resolve(); {
				case v.Kind() == slog.KindString:
					a.Value = slog.StringValue(clip.Text(v.String(), longest))
				case v.Kind() == slog.KindDuration: // otherwise JSON has a number of nanoseconds
					a.Value = slog.StringValue(v.Duration().Round(time.Microsecond).String())
				}
				if err, ok := a.Value.Any().(error); ok {
					a.Value = slog.StringValue(clip.Text(err.Error(), longest))
				}
				return a
			},
		}),
		slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}),
	))
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
