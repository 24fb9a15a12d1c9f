// Package lifecycletest provides fake sandboxes without processes. With them, tests of the
// registry, and of packages that use the registry, need no real sandboxes.
package lifecycletest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// Fakes launches fakes. Its fields must be set before use. Afterwards, it is safe for
// concurrent use.
type Fakes struct {
	// Before is called at the beginning of Launch, with the context of Launch.
	Before func(ctx context.Context)
	// Lacks lists the features that the engine of the fakes does not promise. It maps each feature to
	// the reason.
	Lacks map[engine.Feature]string
	// Suspends makes the fakes suspend, as [lifecycle.Instance] describes.
	Suspends bool
	// SavesMemory makes the engine of the fakes promise [engine.SavedMemory], too.
	SavesMemory bool
	// Hook is called at the beginning of each operation of a fake. If it returns an error, the
	// operation fails.
	Hook func(ctx context.Context, id string, op Operation) error

	mu    sync.Mutex
	fail  error
	specs map[string]lifecycle.Spec
	made  map[string]*Fake
}

// Operation is an operation of a fake.
type Operation string

// Operations of a fake.
const (
	Pause      Operation = "pause"
	Resume     Operation = "resume"
	SaveMemory Operation = "save memory"
	Save       Operation = "save"
	Healthy    Operation = "healthy"
	Close      Operation = "close"
	Checkpoint Operation = "checkpoint"
	Resize     Operation = "resize"
	Busy       Operation = "busy" // an error that is ErrBusy means that the fake is busy
)

// ErrBusy is the error with which a hook makes a fake busy.
var ErrBusy = errors.New("busy")

// Fake is a sandbox without processes.
type Fake struct {
	id    string
	hooks *Fakes
	once  sync.Once
	done  chan struct{}
	err   error

	mu     sync.Mutex
	rules  *network.Rules
	paused bool
	memory int64
	knows  string // contents of the fake's memory
	files  string
	below  string // files of the fake's layers
	has    engine.Resources
}

func (f *Fake) hook(ctx context.Context, op Operation) error {
	if f.hooks.Hook == nil {
		return nil
	}
	return f.hooks.Hook(ctx, f.id, op)
}

// Launch returns a new fake. It can be used as lifecycle.Options.Launch.
func (f *Fakes) Launch(ctx context.Context, spec lifecycle.Spec) (lifecycle.Instance, error) {
	if f.Before != nil {
		f.Before(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	fake := &Fake{id: spec.ID, hooks: f, done: make(chan struct{})}
	var err error
	if fake.below, err = read(spec.Layers...); err != nil {
		return nil, fmt.Errorf("layers of %q: %w", spec.ID, err)
	}
	if spec.Files != "" {
		if fake.files, err = read(spec.Files); err != nil {
			return nil, fmt.Errorf("files of %q: %w", spec.ID, err)
		}
	}
	if spec.Memory != "" {
		knows, err := os.ReadFile(filepath.Join(spec.Memory, memoryName))
		if err != nil {
			return nil, fmt.Errorf("memory of %q: %w", spec.ID, err)
		}
		fake.knows = string(knows)
	}
	if f.made == nil {
		f.specs, f.made = map[string]lifecycle.Spec{}, map[string]*Fake{}
	}
	f.specs[spec.ID], f.made[spec.ID] = spec, fake
	return fake, nil
}

// Fail makes every later Launch return err. If err is nil, Launch works again.
func (f *Fakes) Fail(err error) {
	f.mu.Lock()
	f.fail = err
	f.mu.Unlock()
}

// Spec returns the spec with which a sandbox was launched.
func (f *Fakes) Spec(id string) lifecycle.Spec {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.specs[id]
}

// Fake returns the fake with the given id. It returns nil if no fake with this id was ever launched.
func (f *Fakes) Fake(id string) *Fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.made[id]
}

// IDs returns the ids of all sandboxes that were launched, in no particular order.
func (f *Fakes) IDs() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := make([]string, 0, len(f.made))
	for id := range f.made {
		ids = append(ids, id)
	}
	return ids
}

// Suspends implements [lifecycle.Instance].
func (f *Fake) Suspends() bool { return f.hooks.Suspends }

// Check returns an error if [Fakes].Lacks contains the feature. If [Fakes].SavesMemory is not set, it
// also returns an error for [engine.SavedMemory].
func (f *Fake) Check(feature engine.Feature) error {
	if feature == engine.SavedMemory && !f.hooks.SavesMemory {
		return &lifecycle.RefusedError{Reason: "not supported by the fake engine: the memory of snapshots"}
	}
	if why := f.hooks.Lacks[feature]; why != "" {
		return &lifecycle.RefusedError{Reason: why}
	}
	return nil
}

// Done returns a channel that is closed when the fake has ended.
func (f *Fake) Done() <-chan struct{} { return f.done }

// Err returns the reason why the fake ended. It returns nil while the fake runs.
func (f *Fake) Err() error {
	if !f.Ended() {
		return nil
	}
	return f.err
}

// Close ends the fake, and returns the error of [Fakes].Hook.
func (f *Fake) Close() error {
	err := f.hook(context.Background(), Close)
	f.Die(engine.ErrClosed)
	return err
}

// Die ends the fake as if it had ended by itself.
func (f *Fake) Die(err error) { f.once.Do(func() { f.err = err; close(f.done) }) }

// Ended reports whether the fake has ended.
func (f *Fake) Ended() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// SetEgress stores rules. [Fake.Rules] returns them.
func (f *Fake) SetEgress(rules *network.Rules) {
	f.mu.Lock()
	f.rules = rules
	f.mu.Unlock()
}

// Rules returns the rules that were set last, or nil if no rules were set.
func (f *Fake) Rules() *network.Rules {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rules
}

// Resize stores the resources r. [Fake.Has] returns them.
func (f *Fake) Resize(ctx context.Context, r engine.Resources) error {
	if err := f.hook(ctx, Resize); err != nil {
		return err
	}
	if f.Ended() {
		return f.err
	}
	f.mu.Lock()
	f.has = r
	f.mu.Unlock()
	return nil
}

// Has returns the resources of the fake: those of its last Resize or of its launch.
func (f *Fake) Has() engine.Resources {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.has
}

// Pause stops the fake.
func (f *Fake) Pause(ctx context.Context) error { return f.change(ctx, Pause, true) }

// Resume lets the fake continue.
func (f *Fake) Resume(ctx context.Context) error { return f.change(ctx, Resume, false) }

func (f *Fake) change(ctx context.Context, op Operation, paused bool) error {
	if err := f.hook(ctx, op); err != nil {
		return err
	}
	if f.Ended() {
		return f.err
	}
	f.mu.Lock()
	f.paused = paused
	f.mu.Unlock()
	return nil
}

// Paused reports whether the fake is stopped.
func (f *Fake) Paused() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.paused
}

// filesName is the name of the file with a fake's files. memoryName is the name of the file
// with a fake's memory.
const filesName, memoryName = "files", "pages"

// Learn replaces the contents of the fake's memory.
func (f *Fake) Learn(text string) {
	f.mu.Lock()
	f.knows = text
	f.mu.Unlock()
}

// Knows returns the contents of the fake's memory. These are the contents that Learn set last, or
// the saved memory with which the fake began.
func (f *Fake) Knows() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.knows
}

// SaveMemory writes the contents of the fake's memory.
func (f *Fake) SaveMemory(ctx context.Context, dir string) error {
	if !f.Paused() {
		return errors.New("its memory was saved while it runs")
	}
	return f.saveMemory(ctx, dir)
}

func (f *Fake) saveMemory(ctx context.Context, dir string) error {
	if !f.hooks.SavesMemory {
		return errors.ErrUnsupported
	}
	if err := os.WriteFile(filepath.Join(dir, memoryName), []byte(f.Knows()), 0o600); err != nil {
		return err
	}
	if err := f.hook(ctx, SaveMemory); err != nil { // last, because the file must not be left after an error
		return err
	}
	if f.Ended() {
		return f.err
	}
	return nil
}

// Write replaces the files of the fake.
func (f *Fake) Write(files string) {
	f.mu.Lock()
	f.files = files
	f.mu.Unlock()
}

// Files returns the files of the fake's layers, followed by the fake's own files. These are the files
// that Write set last or, before the first Write, the files with which the fake began.
func (f *Fake) Files() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.below + f.files
}

// saveTo writes the fake's own files to dir.
func (f *Fake) saveTo(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return os.WriteFile(filepath.Join(dir, filesName), []byte(f.files), 0o600)
}

// read joins the files of the fakes in dirs to one text, in the order of dirs.
func read(dirs ...string) (string, error) {
	var all []byte
	for _, dir := range dirs {
		files, err := os.ReadFile(filepath.Join(dir, filesName))
		if err != nil {
			return "", err
		}
		all = append(all, files...)
	}
	return string(all), nil
}

// Sharing lets fakes share their saved files. It can be used as layers.Options.Sharing.
func Sharing() layers.Sharing { return sharing{} }

type sharing struct{}

func (sharing) Merge(_ context.Context, dirs []string, to string) error {
	all, err := read(dirs...)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, filesName), []byte(all), 0o600)
}

// Save writes the fake's files to dir.
func (f *Fake) Save(ctx context.Context, dir string) error {
	if !f.Paused() {
		return errors.New("saved while it runs")
	}
	if err := f.hook(ctx, Save); err != nil {
		return err
	}
	return f.saveTo(dir)
}

// Checkpoint writes the fake's files to dir, where other fakes can share them. If memory is not "",
// Checkpoint also writes the fake's memory to the directory memory.
func (f *Fake) Checkpoint(ctx context.Context, dir, memory string, share bool) (shared bool, err error) {
	if err := f.hook(ctx, Checkpoint); err != nil {
		return false, err
	}
	if f.Ended() {
		return false, f.err
	}
	if memory != "" {
		if err := f.saveMemory(ctx, memory); err != nil {
			return false, fmt.Errorf("%w: %w", lifecycle.ErrMemory, err)
		}
	}
	if err := f.hook(ctx, Save); err != nil {
		return false, err
	}
	return share, f.saveTo(dir)
}

// Memory returns the number of bytes that [Fake.Use] set last.
func (f *Fake) Memory() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.memory
}

// Use makes the fake report the given number of bytes of memory.
func (f *Fake) Use(bytes int64) {
	f.mu.Lock()
	f.memory = bytes
	f.mu.Unlock()
}

// Busy implements [lifecycle.Instance].
func (f *Fake) Busy(ctx context.Context) (bool, error) {
	err := f.hook(ctx, Busy)
	if errors.Is(err, ErrBusy) {
		return true, nil
	}
	return false, err
}

// Healthy returns the error of [Fakes].Hook.
func (f *Fake) Healthy(ctx context.Context) error { return f.hook(ctx, Healthy) }
