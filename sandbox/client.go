package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
)

// closeTimeout limits the time of Close, so that cleaning up does not block a program.
const closeTimeout = 10 * time.Second

// SandboxState is the state of a sandbox. A service may use values other than the constants of this
// type.
type SandboxState = api.SandboxState

// These are the states of a sandbox.
const (
	StateRunning = api.StateRunning
	StatePaused  = api.StatePaused
)

// Client creates sandboxes and connects to them, with one key and one pool of connections. It
// is safe for concurrent use. Close the sandboxes before the client.
type Client struct {
	// Volumes provides the operations on volumes.
	Volumes *Volumes
	// Snapshots lists and deletes snapshots.
	Snapshots *Snapshots
	// Secrets provides the operations on secrets.
	Secrets *Secrets
	// Templates provides the operations on templates. Package template builds templates.
	Templates *api.TemplateService

	api          *api.Client
	http         *http.Client
	interceptors []connect.Interceptor
	trace        Trace
	defaults     sandboxConfig

	mu      sync.Mutex
	closed  bool
	pending sync.WaitGroup // open calls, and abandoned creations that may still succeed

	hurry     chan struct{} // closed when pending calls have no time left
	hurryOnce sync.Once
}

// NewClient returns a new client. A setting for which there is no option comes from the environment
// or from the file .env, as [api.FromEnv] describes.
func NewClient(opts ...ClientOption) (*Client, error) {
	c, err := newConfig(sandboxConfig{template: DefaultTemplate}, opts)
	if err != nil {
		return nil, err
	}
	control, err := api.NewClient(append(c.client, api.FromEnv())...)
	if err != nil {
		return nil, err
	}
	client := &Client{
		api: control,
		http: &http.Client{
			Transport: control.Transport(),
			// A redirect would send a token to another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		interceptors: c.interceptors,
		trace:        c.trace,
		defaults:     c.sandboxConfig,
		hurry:        make(chan struct{}),
	}
	client.Volumes, client.Snapshots, client.Secrets, client.Templates = &Volumes{client}, &Snapshots{client}, &Secrets{client}, control.Templates
	return client, nil
}

// API returns the control plane client that this client uses. [Client.Close] closes it.
func (c *Client) API() *api.Client { return c.api }

// Create starts a sandbox. ctx limits only the call, and not the life of the sandbox. If Create
// fails, no sandbox remains. When ctx ends during a creation, the sandbox is killed as soon as the
// service answers. [Client.Close] waits for this.
func (c *Client) Create(ctx context.Context, opts ...CreateOption) (*Sandbox, error) {
	cfg, err := configure(c, "Create", opts)
	if err != nil {
		return nil, err
	}
	return c.createTraced(ctx, cfg)
}

func (c *Client) createTraced(ctx context.Context, cfg sandboxConfig) (*Sandbox, error) {
	ctx, traced := tracing(ctx, c.trace.Create, cmp.Or(cfg.image, cfg.template))
	sb, err := c.create(ctx, cfg)
	traced(sb, err)
	return sb, err
}

func (c *Client) create(ctx context.Context, cfg sandboxConfig) (*Sandbox, error) {
	made, err := making(ctx, c, cfg.life(), func(ctx context.Context) (*api.Sandbox, error) {
		return c.api.Sandboxes.Create(ctx, cfg.createParams())
	}, func(sb *api.Sandbox) []*api.Sandbox { return []*api.Sandbox{sb} })
	failed, _ := errors.AsType[*api.Error](err)
	switch template := clip.Text(cmp.Or(cfg.image, cfg.template), 128); {
	case failed != nil && failed.StatusCode == http.StatusNotFound && cfg.image == "": // The template is missing: a missing volume or secret has status 400.
		return nil, fmt.Errorf("sandbox: create from %s: %w: %w", template, ErrUnknownTemplate, err)
	case err != nil:
		return nil, fmt.Errorf("sandbox: create from %s: %w", template, err)
	}
	sb := newSandbox(c, made, cfg, true)
	if err := sb.startMCP(ctx); err != nil {
		return nil, errors.Join(err, sb.Close())
	}
	return sb, nil
}

func (c *sandboxConfig) createParams() *api.CreateParams {
	p := &api.CreateParams{
		Template: c.template, Image: c.image, Resources: api.Resources(c.resources), Lifetime: c.life(), Metadata: c.metadata, UniqueLabel: c.uniqueLabel, Envs: c.envs,
		AllowInternetAccess: c.internet, Egress: c.rules(), PrivateTraffic: c.private,
		HTTPSPorts: c.httpsPorts, RequestHost: c.requestHost, VolumeMounts: allAs(c.volumes, VolumeMount.wire),
		Mounts: allAs(c.mounts, Mount.wire), MCP: c.mcp,
	}
	c.expiry.apply(p)
	return p
}

// Connect returns a handle to an existing sandbox. It resumes a paused sandbox. With [WithReboot],
// it starts a paused sandbox anew instead. Connect never shortens the sandbox's lifetime.
// [WithExpiry] sets the minimum of the lifetime. Closing the handle leaves the sandbox running. If
// the sandbox pauses at the end of its lifetime, the handle extends the lifetime only if
// Expiry.Renew is set.
func (c *Client) Connect(ctx context.Context, id string, opts ...ConnectOption) (*Sandbox, error) {
	cfg, err := configure(c, "Connect", opts)
	if err == nil {
		err = cfg.checkConnect()
	}
	if err != nil {
		return nil, err
	}
	return c.connectTraced(ctx, id, cfg)
}

func (c *Client) connectTraced(ctx context.Context, id string, cfg sandboxConfig) (*Sandbox, error) {
	ctx, traced := tracing(ctx, c.trace.Connect, id)
	sb, err := c.connect(ctx, id, cfg)
	traced(sb, err)
	return sb, err
}

func (c *Client) connect(ctx context.Context, id string, cfg sandboxConfig) (*Sandbox, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.pending.Done()
	if cfg.ask != nil {
		if err := c.api.Sandboxes.CheckAsk(ctx); err != nil {
			return nil, fmt.Errorf("sandbox: connect: %w", err)
		}
	}
	sb, err := c.api.Sandboxes.Connect(ctx, id, &api.ConnectParams{Lifetime: cfg.life(), Reboot: cfg.reboot})
	if err != nil {
		return nil, fmt.Errorf("sandbox: connect: %w", unresponsive(missing(id, err)))
	}
	return newSandbox(c, sb, cfg, false), nil
}

// Info describes a sandbox. It does not connect to the sandbox, and therefore does not resume it.
// If there is no such sandbox, the error is [ErrGone].
func (c *Client) Info(ctx context.Context, id string) (*Info, error) {
	info, err := c.api.Sandboxes.Get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("sandbox: info: %w", missing(id, err))
	}
	return new(infoOf(*info)), nil
}

// Kill ends a running or paused sandbox. Any program may have created the sandbox. If there is no
// such sandbox, the error is [ErrGone].
func (c *Client) Kill(ctx context.Context, id string) error {
	if err := c.api.Sandboxes.Kill(ctx, id); err != nil {
		return fmt.Errorf("sandbox: kill: %w", missing(id, err))
	}
	return nil
}

// begin registers a call that Close waits for.
func (c *Client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.pending.Add(1)
	return nil
}

// List returns all sandboxes of the key, newest first; see
// [api.SandboxService.List].
func (c *Client) List(ctx context.Context, p *ListParams) iter.Seq2[Info, error] {
	return eachAs(c.api.Sandboxes.List(ctx, (*api.ListParams)(p)), infoOf)
}

// ReapParams selects the sandboxes that Reap kills.
type ReapParams struct {
	// Metadata lists labels that a sandbox must have. Reap refuses an empty filter, so that
	// nobody kills every sandbox by mistake.
	Metadata map[string]string
	// OlderThan is the minimum age of a sandbox that Reap kills.
	OlderThan time.Duration
}

// Reap kills the running and paused sandboxes that p selects, and returns their ids. If a sandbox
// cannot be killed, Reap continues with the others. It then returns all errors joined, together
// with the ids of the killed sandboxes.
func (c *Client) Reap(ctx context.Context, p *ReapParams) ([]string, error) {
	if p == nil || len(p.Metadata) == 0 {
		return nil, errors.New("sandbox: reap: ReapParams.Metadata must name at least one label")
	}
	var doomed []string
	for info, err := range c.List(ctx, &ListParams{Metadata: p.Metadata}) {
		if err != nil {
			return nil, fmt.Errorf("sandbox: reap: %w", err)
		}
		if time.Since(info.StartedAt) >= p.OlderThan {
			doomed = append(doomed, info.ID)
		}
	}
	var killed []string
	var failed []error
	for _, id := range doomed {
		switch err := c.api.Sandboxes.Kill(ctx, id); {
		case err == nil:
			killed = append(killed, id)
		case !errors.Is(err, api.ErrNotFound):
			failed = append(failed, fmt.Errorf("sandbox: reap %s: %w", id, err))
		}
	}
	return killed, errors.Join(failed...)
}

// Close frees the client's resources. First it waits for creations whose Create call has ended
// early, and kills their sandboxes. If the service does not answer such a creation within 2
// seconds, Close stops waiting for it. If the service then still creates the sandbox, the sandbox
// runs until the end of its lifetime. Close takes at most 10 seconds in all. It does not close
// sandboxes: close them first. Close may be called more than once, and on a nil Client.
func (c *Client) Close() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	if !waitFor(&c.pending, createGrace) {
		c.hurryOnce.Do(func() { close(c.hurry) })
		waitFor(&c.pending, closeTimeout-createGrace)
	}
	return c.api.Close()
}

// waitFor reports whether group became empty within d.
func waitFor(group *sync.WaitGroup, d time.Duration) bool {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
