package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// kept describes the files and the memory of a paused sandbox in the store.
type kept struct {
	dir     string  // directory of the files; the memory is below it, in memoryName
	sandbox Sandbox // record of the sandbox at the pause; its field Memory means that the memory is saved, too
}

// memoryName is the name of the directory for memory, below the saved files.
const memoryName = "memory"

// memory returns the directory of the memory. It returns "" if there is no memory.
func (k *kept) memory() string {
	if !k.sandbox.Memory {
		return ""
	}
	return filepath.Join(k.dir, memoryName)
}

// savedVersion is the version of the format of saved. restore reads this version and all earlier
// ones.
const savedVersion = 1

// saved is the record of a paused sandbox in the store. Its field names, and those of
// [Request], [Template] and [Network], are part of the format.
type saved struct {
	Version   int
	Request   Request
	StartedAt time.Time
	PausedAt  time.Time
	Memory    bool // the processes were also kept, as long as the server lived
	// SavedMemory means that the directory with the sandbox's files also contains its memory. Older
	// versions of this program ignore the field, and start the sandbox from the files alone.
	SavedMemory bool `json:",omitempty"`
}

// keep copies the files of a stopped sandbox to the store. With p.saveMemory, it also copies
// the memory. It records everything that a resume needs.
func (r *Registry) keep(ctx context.Context, rec *record, sb Sandbox, instance Instance, p pause) (_ *kept, err error) {
	if err := r.reserveKept(rec); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.releaseKept(rec)
			err = &SaveError{err}
		}
	}()
	dir, err := r.store.NewDir()
	if err != nil {
		return nil, err
	}
	k, err := r.publish(ctx, dir, sb, instance, p)
	if err != nil {
		return nil, errors.Join(err, r.store.Discard(dir))
	}
	r.forgetRunning(ctx, sb.ID)
	return k, nil
}

// publish fills dir, a new directory of the store, with the files of a paused sandbox. Then it stores
// the record of the sandbox.
func (r *Registry) publish(ctx context.Context, dir string, sb Sandbox, instance Instance, p pause) (*kept, error) {
	memory, err := r.keepMemory(ctx, dir, sb.ID, instance, p)
	if err != nil {
		return nil, err
	}
	if err := instance.Save(ctx, dir); err != nil { // last, because the saved memory belongs to these files
		return nil, err
	}
	value, err := json.Marshal(saved{savedVersion, sb.Request, sb.StartedAt, sb.EndAt, sb.Memory, memory})
	if err != nil {
		return nil, err
	}
	published, err := r.store.Put(store.Sandboxes, sb.ID, value, dir)
	if err != nil {
		return nil, err
	}
	sb.Memory, sb.Unresponsive = memory, false // the stored record has no processes
	return &kept{published, sb}, nil
}

// keepMemory saves the memory of a stopped sandbox, if p.saveMemory is set. The memory is saved in
// a directory below the sandbox's files. keepMemory reports whether it saved the memory. In an
// automatic pause, it ignores a failure.
func (r *Registry) keepMemory(ctx context.Context, dir, id string, instance Instance, p pause) (bool, error) {
	if !p.saveMemory {
		return false, nil
	}
	if !p.memoryUntil.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, p.memoryUntil)
		defer cancel()
	}
	to := filepath.Join(dir, memoryName)
	err := os.Mkdir(to, 0o700)
	if err == nil {
		err = instance.SaveMemory(ctx, to)
	}
	switch {
	case err == nil:
		return true, nil
	case !p.unasked:
		return false, fmt.Errorf("%w: %w", ErrMemory, err)
	}
	r.options.Logger.WarnContext(ctx, "sandbox paused without its memory, which cannot be saved", "sandbox", id, "error", err)
	return false, os.RemoveAll(to)
}

// reserveKept counts a sandbox whose files are about to be kept for the first time.
func (r *Registry) reserveKept(rec *record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case rec.kept != nil:
		return nil
	case r.kept >= r.options.MaxKept:
		return &KeptLimitError{r.options.MaxKept}
	}
	r.kept++
	return nil
}

func (r *Registry) releaseKept(rec *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec.kept == nil {
		r.kept--
	}
}

// noteRunning records that a sandbox runs, so that the next server can report the sandbox's end.
func (r *Registry) noteRunning(id string) {
	if r.store.Durable() {
		r.store.Note(store.Running, id, []byte("{}"))
	}
}

// forgetRunning removes the record that noteRunning made.
func (r *Registry) forgetRunning(ctx context.Context, id string) {
	if !r.store.Durable() {
		return
	}
	if err := r.store.Delete(store.Running, id); err != nil {
		r.options.Logger.ErrorContext(ctx, "state directory", "sandbox", id, "error", err)
	}
}

// restore takes over the sandboxes that an earlier registry left in the store. It does not
// change unreadable records, because another version may be able to read them.
func (r *Registry) restore() {
	ctx, log := context.Background(), r.options.Logger
	all, err := r.store.Records(store.Sandboxes)
	if err != nil {
		log.ErrorContext(ctx, "sandboxes that cannot be read are left alone", "error", err)
		r.layers.Keep()
	}
	for _, entry := range all {
		k, memory, err := r.load(entry)
		if err != nil {
			log.ErrorContext(ctx, "a sandbox that cannot be read is left alone", "sandbox", entry.ID, "error", err)
			r.layers.Keep()
			continue
		}
		base, err := r.layers.Use(k.sandbox.Layers...)
		if err != nil {
			log.ErrorContext(ctx, "a sandbox without what it stands on is left alone", "sandbox", entry.ID, "error", err)
			r.layers.Keep()
			continue
		}
		if memory && !k.sandbox.Memory {
			log.WarnContext(ctx, "sandbox was paused with its memory, which ended with the local cloud: it can be resumed from its files", "sandbox", entry.ID)
		}
		r.kept++
		rec := &record{Sandbox: k.sandbox, kept: k, base: base, asks: new(network.Asks), use: r.newUse(&k.sandbox.Request)}
		r.records[entry.ID] = rec
		r.placeLocked(rec)
	}
	ran, err := r.store.Records(store.Running)
	if err != nil {
		log.ErrorContext(ctx, "what ran is not known", "error", err)
	}
	for _, entry := range ran {
		if r.records[entry.ID] == nil {
			r.ended.add(entry.ID, left)
		}
		r.forgetRunning(ctx, entry.ID)
	}
}

// load reads the stored record of a sandbox. memory reports whether the processes of the sandbox
// were kept in addition to its files.
func (r *Registry) load(entry store.Record) (k *kept, memory bool, err error) {
	var s saved
	if err := json.Unmarshal(entry.Value, &s); err != nil {
		return nil, false, err
	}
	s.Request.Template.Engine = cmp.Or(s.Request.Template.Engine, engine.Room) // records without an engine are older than the other engines
	sb := r.newSandbox(s.Request, entry.ID)
	sb.State, sb.StartedAt, sb.EndAt, sb.Memory = Paused, s.StartedAt, s.PausedAt, s.SavedMemory
	switch {
	case s.Version < 1 || s.Version > savedVersion:
		return nil, false, fmt.Errorf("its version is %d, and this program knows up to %d", s.Version, savedVersion)
	case entry.Dir == "":
		return nil, false, errors.New("it has no files")
	case !validID(entry.ID) || s.Request.Template.ID == "":
		return nil, false, errors.New("it has no id or no template")
	}
	_, err = sb.rules()
	return &kept{entry.Dir, sb}, s.Memory, err
}

// validID reports whether id has the form of a sandbox id.
func validID(id string) bool {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	return len(id) == idLength && id[0] == 'i' && strings.Trim(id, alphabet) == ""
}
