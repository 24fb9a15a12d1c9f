package builds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

// Bounds of builds.
const (
	// MaxActive bounds the builds that are started and not finished. maxRunning bounds the builds that
	// run at the same time. The other started builds wait.
	MaxActive  = 20
	maxRunning = 4

	// MaxSteps bounds the steps of one build.
	MaxSteps = 1000

	stepDeadline     = time.Hour
	readyDeadline    = 10 * time.Minute
	minReadyInterval = 50 * time.Millisecond
	maxReadyInterval = 2 * time.Second

	// maxLogs bounds the bytes of the logs of finished builds. maxJobs bounds their number.
	maxLogs = 32 << 20
	maxJobs = 1000
	// maxWaiting bounds the builds of one tag that wait for [Builder.Start]. The bound is needed
	// because clients may never start a build that they requested.
	maxWaiting = 32
)

// DefaultCap is the default of [Options].Cap: the maximum size of layers, cached steps and archives
// together, in bytes.
const DefaultCap = 20 << 30

var (
	// ErrBusy means that [MaxActive] builds are started and not finished.
	ErrBusy = errors.New("builds: too many builds at once")
	// ErrClosed means that the builder has been closed.
	ErrClosed = errors.New("builds: the cloud is closing")
)

// Reasons for cancelling a build.
var (
	errSuperseded = errors.New("superseded by a newer build of the template with the same tag")
	errDeleted    = errors.New("the template was deleted")
	errEnded      = errors.New("the local cloud ended during the build: build it again")
)

// Sandbox is a sandbox in which a step of a build runs.
type Sandbox interface {
	// Dial connects to a port of the sandbox.
	Dial(ctx context.Context, port int) (net.Conn, error)
	// Checkpoint saves the files that the sandbox wrote, as [layers.Save] does. memory must be
	// "".
	Checkpoint(ctx context.Context, dir, memory string, share bool) (shared bool, err error)
	Done() <-chan struct{} // closed when the sandbox has ended, for any reason
	Err() error            // the reason for the end; nil while the sandbox runs
	Close() error          // ends the sandbox
}

// Options configure a [Builder].
type Options struct {
	Store     *store.Store
	Templates *templates.Registry // the templates in Store
	Layers    *layers.Set         // the layers in Store
	Cache     *Cache              // the cached steps in Store
	// KeptImages returns the container images that are kept. The builder may drop them to make room
	// for builds. A nil KeptImages means that there are none.
	KeptImages func() []layers.Use
	// Launch starts a sandbox that only the builder uses. It does not run the commands of the
	// sandbox's template.
	Launch func(ctx context.Context, spec lifecycle.Spec) (Sandbox, error)
	// Engine is the engine for builds that name no engine, neither directly nor through their
	// template.
	Engine engine.Name
	// Target returns the properties of an engine for builds. It returns an error if this cloud does
	// not have the engine. If Target is nil, every engine has the zero Target.
	Target func(ctx context.Context, name engine.Name) (Target, error)
	// Describe describes the limits of an engine's sandboxes if these resources are requested. The text
	// is for the log of a build.
	Describe func(engine.Name, engine.Resources) string
	Path     string // the value of PATH for processes in sandboxes
	Cap      int64  // the maximum size of layers, cached steps and archives, in bytes; 0 means DefaultCap
	// ImageCap bounds the bytes of kept images that no template and no cached step uses; 0 means that
	// only Cap bounds them.
	ImageCap int64
	Logger   *slog.Logger
}

// Target describes the properties of an engine that builds depend on.
type Target struct {
	// Machine identifies everything that the content of layers depends on, except the steps. Layers
	// that were built with one Machine are not used with another one.
	Machine string
	// Base returns a name that identifies the contents of the built-in templates. A nil Base means
	// that these contents never change.
	Base    func(ctx context.Context) (string, error)
	OneUser string // the reason why sandboxes have only one user, and the remedy; "" means that they have several users
	User    string // name of the only user; "": this user is both root and user
	Chosen  bool   // a template that begins with an image chooses the only user
	Refusal string // the reason why no build is possible; "" means that builds are possible
	// Images fetches images. If Images is nil, builds can begin with built-in templates only, and
	// NoImages may explain the reason. Unpack unpacks a tar as a layer above other layers, as
	// [engine.Engine] does. If Unpack is nil, Images fetches the empty image, too.
	Images   Images
	NoImages string
	Unpack   func(ctx context.Context, below []string, tar io.Reader, dir string) error
	// Has reports whether an engine that stores images itself has the image with a digest. It is nil
	// for an engine whose images are layers. ByReference means that the engine fetches the image of
	// each sandbox itself.
	Has         func(ctx context.Context, digest string) (bool, error)
	ByReference bool
}

// Builder builds templates. It is safe for concurrent use. It must be closed before the store and
// the layers of its [Options].
type Builder struct {
	options Options
	uploads *Uploads
	slots   chan struct{} // has room for maxRunning builds
	work    sync.WaitGroup

	mu      sync.Mutex
	jobs    map[string]*job
	order   []*job            // the values of jobs, oldest first
	fetches map[string]*fetch // the images that are fetched for sandboxes, by their keys in the cache
	closed  bool
}

// job is a build that was requested after the start of the local cloud. Builder.mu guards the
// fields that change.
type job struct {
	template, id string
	tags         []string
	archives     []string // hashes of the archives from which the steps of the build copy
	log          *Log
	cancel       context.CancelCauseFunc
	failure      *templates.Failure // nil unless it failed
	status       templates.Status
	spec         Spec // empty once the build has ended
	engine       engine.Name
	ended        chan struct{} // closed when the build has ended, for any reason
}

// New returns a builder without builds.
func New(o Options) *Builder {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.KeptImages == nil {
		o.KeptImages = func() []layers.Use { return nil }
	}
	o.Cap = cmp.Or(o.Cap, DefaultCap)
	return &Builder{options: o, uploads: OpenUploads(o.Store, o.Logger), slots: make(chan struct{}, maxRunning), jobs: map[string]*job{}, fetches: map[string]*fetch{}}
}

// Uploads returns the archives from which steps copy files.
func (b *Builder) Uploads() *Uploads { return b.uploads }

// Request creates a build that waits for [Builder.Start]. If more than maxWaiting builds of the same
// template that share a tag with the new build wait, the oldest of them end as superseded.
func (b *Builder) Request(ref templates.Reference, tags []string, asked templates.Build) (templates.Template, templates.Build, error) {
	if _, err := b.target(context.Background(), cmp.Or(asked.Engine, b.options.Engine)); err != nil {
		return templates.Template{}, templates.Build{}, err
	}
	b.mu.Lock()
	busy := b.activeLocked() >= MaxActive
	b.mu.Unlock()
	if busy {
		return templates.Template{}, templates.Build{}, ErrBusy
	}
	t, build, err := b.options.Templates.Request(ref, tags, asked)
	if err != nil {
		return t, build, err
	}
	var waiting []templates.Build // oldest first, like all builds
	for _, other := range t.Builds {
		if other.ID != build.ID && other.Status == templates.Waiting && overlap(other.Tags, build.Tags) {
			waiting = append(waiting, other)
		}
	}
	for _, other := range waiting[:max(0, len(waiting)+1-maxWaiting)] {
		b.fail(t.ID, other.ID, templates.Failure{Message: errSuperseded.Error()})
	}
	return t, build, nil
}

// target returns the properties of an engine for builds. It returns an error if no build is
// possible with the engine.
func (b *Builder) target(ctx context.Context, name engine.Name) (Target, error) {
	t, err := b.anyTarget(ctx, name)
	if err == nil && t.Refusal != "" {
		err = fmt.Errorf("%w: building templates: %s", errors.ErrUnsupported, t.Refusal)
	}
	return t, err
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(tag string) bool { return slices.Contains(b, tag) })
}

// fail records the failure of a build, unless the build has ended already.
func (b *Builder) fail(template, id string, f templates.Failure) {
	err := b.options.Templates.Fail(template, id, f)
	if _, refused := errors.AsType[*templates.Error](err); err != nil && !refused {
		b.options.Logger.ErrorContext(context.Background(), "that a build failed cannot be stored", "template", template, "build", id, "error", err)
	}
}

func (b *Builder) activeLocked() int {
	n := 0
	for _, j := range b.order {
		if j.status == templates.Building {
			n++
		}
	}
	return n
}

// Start starts a build that was requested. The build supersedes the running builds of the same
// template that share a tag with it. It does not supersede those with the same steps: it waits for
// their end, and uses their results. If the build fails later, Start still returns nil.
func (b *Builder) Start(template, id string, spec Spec) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return ErrClosed
	case b.activeLocked() >= MaxActive:
		return ErrBusy
	}
	if err := b.options.Templates.Begin(template, id); err != nil {
		return err
	}
	t, err := b.options.Templates.Get(templates.ParseReference(template))
	if err != nil {
		return err
	}
	build, _ := t.Build(id)
	var same []*job
	for _, other := range b.order {
		switch {
		case other.status != templates.Building || other.template != template || !overlap(other.tags, build.Tags):
		case other.engine == build.Engine && reflect.DeepEqual(other.spec, spec):
			same = append(same, other)
		default:
			other.cancel(errSuperseded)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	var archives []string
	for _, step := range spec.All() {
		archives = append(archives, step.FilesHash)
	}
	j := &job{archives: archives, template: template, id: id, tags: build.Tags, log: &Log{}, cancel: cancel, status: templates.Building, spec: spec, engine: build.Engine, ended: make(chan struct{})}
	b.jobs[id], b.order = j, append(b.order, j)
	b.forgetLocked()
	b.work.Go(func() {
		defer cancel(nil)
		b.build(ctx, j, same, t, build)
	})
	return nil
}

// Refuse ends a build that was requested and cannot be started. It returns reason, or an error
// if the build is not waiting for its start.
func (b *Builder) Refuse(template, id string, reason error) error {
	if err := b.options.Templates.Begin(template, id); err != nil {
		return err
	}
	b.fail(template, id, templates.Failure{Step: stepBase, Message: reason.Error()})
	return reason
}

// forgetLocked forgets finished builds, oldest first, until their logs and their number are within
// maxLogs and maxJobs.
func (b *Builder) forgetLocked() {
	bytes, n := 0, 0
	for i, j := range slices.Backward(b.order) {
		if j.status == templates.Building {
			continue
		}
		bytes, n = bytes+j.log.size(), n+1
		if bytes > maxLogs || n > maxJobs {
			delete(b.jobs, j.id)
			b.order = slices.Delete(b.order, i, i+1)
		}
	}
}

// build waits until fewer than maxRunning builds run, and until the builds in same, which have the
// same steps, have ended. Then it runs the build and records the result.
func (b *Builder) build(ctx context.Context, j *job, same []*job, t templates.Template, build templates.Build) {
	defer close(j.ended)
	begun := time.Now()
	j.log.add(slog.LevelInfo, "", fmt.Sprintf("Building template %s/%s", j.template, j.id))
	asked := build.Resources()
	if asked != (engine.Resources{}) {
		j.log.add(slog.LevelInfo, "", b.options.Describe(cmp.Or(build.Engine, b.options.Engine), asked))
	}
	r := &run{Builder: b, resources: asked, job: j, template: t, spec: j.spec, asked: build.Engine, made: map[string]bool{}, stages: map[string]finished{}}
	defer r.close()
	for _, other := range same {
		select {
		case <-other.ended:
		case <-ctx.Done(): // r.wait returns the cause
		}
	}
	err := r.wait(ctx)
	if err == nil {
		err = r.runAll(ctx)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	took := time.Since(begun).Round(10 * time.Millisecond)
	if err == nil {
		// The last line is logged before the build becomes ready, because clients stop reading
		// then.
		j.log.add(slog.LevelInfo, "", fmt.Sprintf("Build finished, took %v", took))
		err = b.options.Templates.Finish(j.template, j.id, r.take())
	}
	var failure *templates.Failure
	if err != nil {
		failure = &templates.Failure{Step: r.step, Message: clip.Text(err.Error(), maxLine), Log: j.log.tail(r.step)}
		j.log.add(slog.LevelError, r.step, fmt.Sprintf("Build failed: %v", err))
		b.fail(j.template, j.id, *failure)
	}
	b.options.Logger.InfoContext(ctx, "template built", "template", t.Name, "build", j.id, "took", took, "error", err)
	b.mu.Lock()
	defer b.mu.Unlock()
	j.status, j.failure, j.spec = templates.Ready, failure, Spec{}
	if failure != nil {
		j.status = templates.Failed
	}
	b.forgetLocked()
}

// Status is the state of a build.
type Status struct {
	Status  templates.Status
	Failure *templates.Failure // nil unless it failed
	Log     func(Select) []templates.Entry
}

// Status returns the state of a build. If the build finished before a restart, or so long ago that
// its log was dropped, the log contains only the last lines of a failed build, and no lines of a
// successful one.
func (b *Builder) Status(template, id string) (Status, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.jobs[id]; j != nil && j.template == template {
		return Status{j.status, j.failure, j.log.Lines}, true
	}
	t, err := b.options.Templates.Get(templates.ParseReference(template))
	build, ok := t.Build(id)
	if err != nil || !ok || t.ID != template {
		return Status{}, false
	}
	var kept []templates.Entry
	if build.Failure != nil {
		kept = build.Failure.Log
	}
	return Status{build.Status, build.Failure, func(s Select) []templates.Entry { return selected(kept, s) }}, true
}

// Drop cancels the builds of a template that was deleted.
func (b *Builder) Drop(template string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range b.order {
		if j.template == template && j.status == templates.Building {
			j.cancel(errDeleted)
		}
	}
}

// Close cancels all builds and waits until they have ended.
func (b *Builder) Close() {
	b.mu.Lock()
	b.closed = true
	for _, j := range b.order {
		j.cancel(errEnded)
	}
	for _, f := range b.fetches {
		f.cancel(ErrClosed)
	}
	b.mu.Unlock()
	b.work.Wait()
}
