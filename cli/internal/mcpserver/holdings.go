package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/sandbox"
)

// errNotYours is the error for a sandbox that calls may not name. It is the same whether or not the
// sandbox exists.
var errNotYours = errors.New("there is no such sandbox of this server: it may have ended. Leave \"sandbox\" out for a new one")

// holdings manages the sandboxes to which a server is connected. The server holds these sandboxes.
type holdings struct {
	config  *Config
	proxies *proxies
	life    context.Context //nolint:containedctx // the server's context: sandboxes outlive calls
	end     context.CancelFunc

	connect   func() (*sandbox.Client, error) // waits for the connection to the service, and returns the client of the service
	connected chan struct{}

	mu          sync.Mutex
	closed      bool
	held        map[string]*held                // the sandboxes that the server holds, by their IDs
	own         map[*sdk.ServerSession]*pending // the sandbox of each session
	making      int                             // the number of sandboxes that are being made
	checkpoints map[string]struct{}             // the IDs of the snapshots that are checkpoints
	work        sync.WaitGroup
}

// pending is a sandbox that is being created. When done is closed, the creation has succeeded or
// failed.
type pending struct {
	done    chan struct{}
	sandbox *held
	err     error
}

// held is a sandbox that the server holds, with the server's state for that sandbox.
type held struct {
	*sandbox.Sandbox
	isOwn bool // the server ends the sandbox when the server itself ends
	asked asking

	shellTurn turn   // protects shell and shellDir
	shell     *shell // the running shell; nil: none is started
	shellDir  string // the directory in which the next shell starts; "" means the home directory

	codeTurn turn // held while code that may call tools runs

	// holdings.mu protects calls and idle.
	calls int
	idle  *time.Timer // the timer that ends an unused sandbox; nil until the server holds the sandbox

	mu       sync.Mutex
	forwards map[int]published
	code     *codeRun // the current run of code, or nil; only the holder of codeTurn changes it
}

func newHeld(sb *sandbox.Sandbox, isOwn bool) *held {
	return &held{Sandbox: sb, isOwn: isOwn, shellTurn: newTurn(), codeTurn: newTurn(), forwards: map[int]published{}}
}

type published struct {
	address string
	end     func() error
}

func newHoldings(config *Config, proxies *proxies) *holdings {
	life, end := context.WithCancel(context.Background())
	h := &holdings{
		config: config, proxies: proxies, life: life, end: end, connected: make(chan struct{}),
		held: map[string]*held{}, own: map[*sdk.ServerSession]*pending{}, checkpoints: map[string]struct{}{},
	}
	h.connect = sync.OnceValues(func() (*sandbox.Client, error) {
		defer close(h.connected)
		return config.Open(life)
	})
	return h
}

// warm connects to the service in the background, so that the first call need not wait for the
// connection.
func (h *holdings) warm() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.work.Go(func() { _, _ = h.connect() }) // the first call reports the error
	}
}

// client returns the client of the service.
func (h *holdings) client(ctx context.Context) (*sandbox.Client, error) {
	h.warm()
	select {
	case <-h.connected:
	case <-h.life.Done():
		return nil, errEnding
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return h.connect()
}

// named returns the sandbox with the given id, for a call. The call must call release when it is
// done.
func (h *holdings) named(ctx context.Context, id string) (box *held, release func(), err error) {
	h.mu.Lock()
	box = h.held[id]
	if box != nil {
		box.calls++ // it is not idle from here on
	}
	h.mu.Unlock()
	if box == nil {
		if box, err = h.adopt(ctx, id); err != nil {
			return nil, nil, err
		}
	}
	return box, func() { h.done(box) }, nil
}

// adopt connects to a sandbox that the server does not hold yet. It returns an error if calls may
// not name that sandbox.
func (h *holdings) adopt(ctx context.Context, id string) (*held, error) {
	client, err := h.client(ctx)
	if err != nil {
		return nil, err
	}
	given := slices.Contains(h.config.Sandboxes, id)
	if !given {
		info, err := client.Info(ctx, id)
		if errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrInvalidArgument) || err == nil && info.Metadata[OwnerLabel] != h.config.Owner {
			return nil, errNotYours
		}
		if err != nil {
			return nil, err
		}
	}
	sb, err := client.Connect(ctx, id, sandbox.WithExpiry(sandbox.Expiry{Renew: true}))
	if err != nil {
		return nil, err
	}
	return h.addHeld(newHeld(sb, !given), true)
}

// ofSession returns the sandbox of a session, and creates one if the session has none. The sandbox
// may outlive the session, because another client may name it. The server ends an idle sandbox.
func (h *holdings) ofSession(ctx context.Context, session *sdk.ServerSession) (*held, func(), error) {
	if len(h.config.Sandboxes) > 0 {
		return h.named(ctx, h.config.Sandboxes[0])
	}
	h.mu.Lock()
	p := h.own[session]
	if p == nil {
		p = h.make(h.config.Options, h.config.Prepare)
		if p.err == nil {
			h.own[session] = p
		}
	}
	h.mu.Unlock()
	return h.await(ctx, p)
}

// fresh creates a sandbox and returns it for a call.
func (h *holdings) fresh(ctx context.Context) (*held, func(), error) {
	h.mu.Lock()
	p := h.make(h.config.Options, h.config.Prepare)
	h.mu.Unlock()
	return h.await(ctx, p)
}

// restored creates a sandbox from the checkpoint that options name. It does not call Prepare,
// because the checkpoint contains the results of Prepare.
func (h *holdings) restored(ctx context.Context, options []sandbox.CreateOption) (*held, func(), error) {
	h.mu.Lock()
	p := h.make(options, nil)
	h.mu.Unlock()
	return h.await(ctx, p)
}

// replace makes box the sandbox of a session.
func (h *holdings) replace(session *sdk.ServerSession, box *held) {
	done := make(chan struct{})
	close(done)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.own[session] = &pending{done: done, sandbox: box}
}

// await waits for a sandbox that is being made, and returns it for a call. The call must call
// release when it is done.
func (h *holdings) await(ctx context.Context, p *pending) (box *held, release func(), err error) {
	if err := wait(ctx, p.done); err != nil {
		return nil, nil, err
	}
	if p.err != nil {
		return nil, nil, p.err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[p.sandbox.ID()] != p.sandbox {
		return nil, nil, errNotYours // it ended since
	}
	p.sandbox.calls++
	return p.sandbox, func() { h.done(p.sandbox) }, nil
}

// make begins to create a sandbox. The end of a call does not cancel the creation, because other
// calls may wait for the same sandbox. The caller must hold h.mu.
func (h *holdings) make(options []sandbox.CreateOption, prepare func(context.Context, *sandbox.Sandbox) error) *pending {
	p := &pending{done: make(chan struct{})}
	if err := h.room(); err != nil {
		p.err = err
		close(p.done)
		return p
	}
	h.making++
	h.work.Go(func() {
		box, err := h.create(options, prepare)
		if err == nil {
			box, err = h.addHeld(box, false)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.making--
		p.sandbox, p.err = box, err
		if err != nil {
			h.drop(p)
		}
		close(p.done)
	})
	return p
}

// room returns an error if the server already holds its maximum of sandboxes, or if the server is
// ending. The caller must hold h.mu.
func (h *holdings) room() error {
	if h.closed {
		return errEnding
	}
	if len(h.held)+h.making >= h.config.MaxSandboxes {
		return fmt.Errorf("this server has %d sandboxes already, its limit: pass the id of one of them as \"sandbox\"", h.config.MaxSandboxes)
	}
	return nil
}

// drop removes p from the session that p belongs to. The caller must hold h.mu.
func (h *holdings) drop(p *pending) {
	for session, one := range h.own {
		if one == p {
			delete(h.own, session)
		}
	}
}

func (h *holdings) create(options []sandbox.CreateOption, prepare func(context.Context, *sandbox.Sandbox) error) (*held, error) {
	client, err := h.client(h.life)
	if err != nil {
		return nil, err
	}
	box := newHeld(nil, true)
	options = append(slices.Clone(options), sandbox.WithMetadata(map[string]string{OwnerLabel: h.config.Owner}))
	if len(h.config.Proxies) > 0 {
		options = append(options, sandbox.WithPrivateTraffic()) // only this program may reach the kernels that call tools
	}
	if h.config.Ask {
		options = append(options, sandbox.WithAsk(box.asked.host))
	}
	sb, err := client.Create(h.life, options...)
	if err != nil {
		return nil, err
	}
	box.Sandbox = sb
	if prepare != nil {
		if err := prepare(h.life, sb); err != nil {
			return nil, errors.Join(err, sb.Close())
		}
	}
	return box, nil
}

// addHeld adds a sandbox to those that the server holds. With forCall it also counts a call that
// uses the sandbox. If another call connected to the same sandbox first, addHeld returns the
// sandbox of that call instead.
func (h *holdings) addHeld(box *held, forCall bool) (*held, error) {
	h.mu.Lock()
	other, closed := h.held[box.ID()], h.closed
	kept := box
	if other != nil {
		kept = other
	}
	if !closed {
		if other == nil {
			box.idle = time.AfterFunc(h.config.Idle, func() { h.expire(box) })
			h.held[box.ID()] = box
		}
		if forCall {
			kept.calls++
		}
	}
	h.mu.Unlock()
	switch {
	case closed:
		return nil, errors.Join(errEnding, h.release(box))
	case other != nil:
		return other, box.Detach()
	}
	return box, nil
}

var errEnding = errors.New("the server is ending")

// done records the end of a call that used a sandbox.
func (h *holdings) done(box *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	box.calls--
	if h.held[box.ID()] == box {
		box.idle.Reset(h.config.Idle)
	}
}

// expire ends the hold of a sandbox that no call has used for [Config.Idle].
func (h *holdings) expire(box *held) {
	h.mu.Lock()
	isHeld := box.calls == 0 && h.takeOut(box) // the end of a call sets the timer again
	h.mu.Unlock()
	if isHeld {
		h.endHold(box)
	}
}

// letGo ends the server's hold of a sandbox that has ended.
func (h *holdings) letGo(box *held) {
	h.mu.Lock()
	isHeld := h.takeOut(box)
	h.mu.Unlock()
	if isHeld {
		h.endHold(box)
	}
}

// takeOut removes a sandbox from those that the server holds, and reports whether the server held
// it. If it returns true, the caller must call endHold afterwards. The caller must hold h.mu.
func (h *holdings) takeOut(box *held) bool {
	if h.closed || h.held[box.ID()] != box {
		return false
	}
	delete(h.held, box.ID())
	for _, p := range h.own {
		if p.sandbox == box {
			h.drop(p)
		}
	}
	h.work.Add(1)
	return true
}

// endHold ends the sandbox if the server may do that. Otherwise it only disconnects from the
// sandbox.
func (h *holdings) endHold(box *held) {
	defer h.work.Done()
	if err := h.release(box); err != nil {
		h.config.Logger.WarnContext(h.life, "a sandbox could not be ended", "sandbox", box.ID(), "error", err)
	}
}

func (h *holdings) release(box *held) error {
	if box.idle != nil {
		box.idle.Stop()
	}
	box.mu.Lock()
	code, sh, forwards := box.code, box.shell, slices.Collect(maps.Values(box.forwards))
	box.mu.Unlock()
	var errs []error
	if code != nil {
		errs = append(errs, code.run.Close())
	}
	for _, p := range forwards {
		errs = append(errs, p.end())
	}
	switch {
	case !box.isOwn || h.config.Keep:
		if sh != nil {
			_ = sh.stop(context.Background()) // the sandbox may have ended, and the shell with it
		}
		errs = append(errs, box.Detach())
	case box.Owned():
		errs = append(errs, box.Close())
	default: // an earlier server of the same owner made it
		ctx, cancel := context.WithTimeout(context.Background(), endPatience)
		defer cancel()
		errs = append(errs, box.Kill(ctx), box.Close())
	}
	return errors.Join(errs...)
}

// endPatience limits the time of each request at the end of a server.
const endPatience = 10 * time.Second

func (h *holdings) addCheckpoint(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkpoints[id] = struct{}{}
}

func (h *holdings) close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		h.work.Wait()
		return nil
	}
	h.closed = true
	boxes := make([]*held, 0, len(h.held))
	for _, box := range h.held {
		boxes = append(boxes, box)
	}
	checkpoints := make([]string, 0, len(h.checkpoints))
	for id := range h.checkpoints {
		checkpoints = append(checkpoints, id)
	}
	h.mu.Unlock()
	h.end()
	err := each(boxes, h.release)
	h.work.Wait()
	if len(checkpoints) == 0 || h.config.Keep {
		return err
	}
	client, _ := h.connect() // it made the checkpoints, so it is connected
	ctx, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	return errors.Join(err, each(checkpoints, func(id string) error { return client.Snapshots.Delete(ctx, id) }))
}
