// Package layers keeps, as layers, the files with which sandboxes begin. Snapshots, forks and builds
// save these files from a sandbox. A layer exists as long as it has a holder, such as a build. If a
// layer must outlast the server, its holder stores a record of the layers that it holds. When the
// next server reads the record, the holder holds these layers again.
//
// If the engine lets sandboxes share directories, a layer contains the files that a sandbox
// wrote above its own layers, and a sandbox has a chain of layers. Otherwise, a layer contains
// all files of a sandbox, and each sandbox begins with a copy of one layer. The files below the
// layers may be stored elsewhere, for example as an image in a daemon. A layer without files then
// represents these files.
//
// The memory of a sandbox is stored in a layer without files. If the last layer of a chain has
// memory, a new sandbox continues with this memory. No layer is above a layer with memory.
package layers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// ErrGone reports that a layer does not exist, or no longer exists.
var ErrGone = errors.New("layers: the files are gone")

// ErrNotShared means that a layer must be shared, but sandboxes cannot share files.
var ErrNotShared = errors.New("layers: sandboxes cannot share files on this machine")

// Use describes a holder whose layers can be created again, and the time of its last use. A caller
// may drop the holder to make room.
type Use struct {
	Name   string
	At     time.Time
	Layers []string // ids of the layers that the holder holds
	Drop   func() error
}

// Sharing lets sandboxes share directories, so that a sandbox need not begin with a copy.
type Sharing interface {
	// Merge merges shared directories, ordered from the lowest, into the empty directory to.
	Merge(ctx context.Context, dirs []string, to string) error
}

// Save saves the files of a sandbox to dir, an empty directory. With share, Save creates a
// directory that other sandboxes can share, if the engine supports this. shared reports whether
// Save created such a directory.
type Save func(dir string, share bool) (shared bool, err error)

// Options configure a [Set].
type Options struct {
	Store *store.Store
	// Sharing returns the implementation of sharing. It is called once, for the first layer. If the
	// field is nil or Sharing returns nil, sandboxes begin with copies.
	Sharing func() Sharing
	// Unneeded is called when a layer of [Set.Outside] no longer has a holder. nil means no call.
	Unneeded func()
	Logger   *slog.Logger // nil: no log
}

// Set holds the layers of a store. It is safe for concurrent use.
type Set struct {
	options Options
	sharing func() Sharing

	mu      sync.Mutex
	layers  map[string]*layer
	unknown bool // there may be holders whose records are unreadable
}

type layer struct {
	dir     string
	shared  bool
	memory  bool   // the layer has memory and no files
	outside string // name of the object that the layer represents; "": the layer has its own files
	holders int
}

// record is the stored record of a layer. The files of the layer are stored with it.
type record struct {
	CreatedAt time.Time
	Shared    bool   // sandboxes share the directory
	Memory    bool   `json:",omitempty"` // the layer has memory and no files
	Outside   string `json:",omitempty"` // name of the object that the layer represents
}

// Open returns the layers of a store. The layers have no holders until other packages hold them. See
// [Set.Sweep].
func Open(o Options) *Set {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Sharing == nil {
		o.Sharing = func() Sharing { return nil }
	}
	if o.Unneeded == nil {
		o.Unneeded = func() {}
	}
	set := &Set{options: o, sharing: sync.OnceValue(o.Sharing), layers: map[string]*layer{}}
	all, err := o.Store.Records(store.Layers)
	if err != nil {
		o.Logger.ErrorContext(context.Background(), "layers that cannot be read are left alone", "error", err)
	}
	for _, r := range all {
		var of record
		if json.Unmarshal(r.Value, &of) == nil && (r.Dir != "" || of.Outside != "") {
			set.layers[r.ID] = &layer{dir: r.Dir, shared: of.Shared, memory: of.Memory, outside: of.Outside}
		}
	}
	return set
}

// Add creates a layer from the files of a sandbox, which save saves. The caller holds the
// layer. If Add fails, nothing of the layer is left.
func (s *Set) Add(save Save) (id string, err error) {
	return s.add(record{}, func(dir string) (bool, error) { return save(dir, s.sharing() != nil) })
}

// Make creates a layer from a directory that fill fills and that sandboxes can share. Apart from
// this, Make is like Add. If sandboxes do not share directories, the error is [ErrNotShared].
func (s *Set) Make(fill func(dir string) error) (id string, err error) {
	if s.sharing() == nil {
		return "", ErrNotShared
	}
	return s.add(record{}, func(dir string) (bool, error) { return true, fill(dir) })
}

// AddMemory creates a layer from a sandbox's memory. save must save the memory to dir, an empty
// directory. The caller holds the new layer. If AddMemory fails, nothing of the layer is left.
func (s *Set) AddMemory(save func(dir string) error) (id string, err error) {
	return s.add(record{Memory: true}, func(dir string) (bool, error) { return false, save(dir) })
}

// add creates a layer from a directory that fill fills. shared reports whether sandboxes can
// share the directory.
func (s *Set) add(of record, fill func(dir string) (shared bool, err error)) (id string, err error) {
	dir, err := s.options.Store.NewDir()
	if err != nil {
		return "", err
	}
	if of.Shared, err = fill(dir); err != nil {
		return "", errors.Join(err, s.options.Store.Discard(dir))
	}
	of.CreatedAt = time.Now().UTC()
	value, err := json.Marshal(of)
	if err != nil {
		return "", errors.Join(err, s.options.Store.Discard(dir))
	}
	id = strings.ToLower(rand.Text())
	published, err := s.options.Store.Put(store.Layers, id, value, dir)
	if err != nil {
		return "", errors.Join(err, s.options.Store.Discard(dir))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layers[id] = &layer{dir: published, shared: of.Shared, memory: of.Memory, holders: 1}
	return id, nil
}

// Outside returns the layer that represents an object that is stored elsewhere. name is the name of
// the object. The layer has no files. The object is needed as long as the layer is held. The caller
// holds the layer.
func (s *Set) Outside(name string) (id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.layers {
		if l.outside == name {
			l.holders++
			return id, nil
		}
	}
	value, err := json.Marshal(record{CreatedAt: time.Now().UTC(), Outside: name})
	if err != nil {
		return "", err
	}
	id = strings.ToLower(rand.Text())
	if _, err := s.options.Store.Put(store.Layers, id, value, ""); err != nil {
		return "", err
	}
	s.layers[id] = &layer{outside: name, holders: 1}
	return id, nil
}

// Needs reports whether a layer represents the object with this name. See [Set.Outside].
func (s *Set) Needs(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.layers {
		if l.outside == name {
			return true
		}
	}
	return false
}

// MaxChain bounds the number of layers of a sandbox, because the search for a missing file checks
// all layers.
const MaxChain = 12

// Chain adds the layer top above the layers below. top was saved from a sandbox with these layers.
// Chain returns all layers, lowest first. If there are too many layers, Chain merges them into one
// layer. top and the layers below must not have memory. The caller must hold top before the call.
// After success, the caller holds each returned layer once. After an error, the caller holds no layer
// from this call, and no longer holds top.
func (s *Set) Chain(ctx context.Context, below []string, top string) (chain []string, err error) {
	dirs, err := s.Hold(below...)
	if err != nil {
		s.Release(top)
		return nil, err
	}
	chain = append(slices.Clone(below), top)
	if len(chain) <= MaxChain {
		return chain, nil
	}
	defer s.Release(chain...)
	s.mu.Lock()
	dirs = append(dirs, s.layers[top].dir)
	s.mu.Unlock()
	merged, err := s.add(record{}, func(dir string) (bool, error) { return true, s.sharing().Merge(ctx, dirs, dir) })
	if err != nil {
		return nil, fmt.Errorf("layers: merge %d of them: %w", len(dirs), err)
	}
	return []string{merged}, nil
}

// Base contains the files and the memory with which a sandbox begins.
type Base struct {
	// IDs lists the sandbox's layers, lowest first. If a layer is saved from the sandbox, these layers
	// are below it. Layers lists the directories that the sandbox shares.
	IDs, Layers []string
	// Files is a directory of saved files, which the sandbox copies. Memory is a directory of saved
	// memory. "" means that there is no such directory. Copied releases both directories, and must be
	// called when the sandbox runs. Copied is idempotent.
	Files, Memory string
	Copied        func()
	// Release releases all layers. It is idempotent.
	Release func()
}

// Use holds the layers ids for a sandbox that begins with these layers. If one of the layers does
// not exist, the error is [ErrGone].
func (s *Set) Use(ids ...string) (Base, error) {
	k, err := s.kinds(ids)
	if err != nil {
		return Base{}, err
	}
	sharing := k.shared == len(k.own) && (k.shared == 0 || s.sharing() != nil)
	if !sharing && (k.shared > 0 || len(k.own) > 1) {
		return Base{}, fmt.Errorf("layers: %d of %d were made to be shared, which this local cloud cannot do: start it with the engine and isolation that made them", k.shared, len(k.own))
	}
	all, err := s.Hold(ids...)
	if err != nil {
		return Base{}, err
	}
	dirs := map[string]string{}
	for i, id := range ids {
		dirs[id] = all[i]
	}
	b := Base{IDs: k.outside}
	copied := k.memory
	if sharing {
		b.IDs = k.files
		for _, id := range k.own {
			b.Layers = append(b.Layers, dirs[id])
		}
	} else {
		b.Files, copied = dirs[k.own[0]], slices.Concat(k.own, k.memory)
	}
	for _, id := range k.memory {
		b.Memory = dirs[id]
	}
	b.Copied = sync.OnceFunc(func() { s.Release(copied...) })
	b.Release = sync.OnceFunc(func() {
		b.Copied()
		s.Release(b.IDs...)
	})
	return b, nil
}

// Split returns the layers of a chain that have files, and the layer that has memory. memory is
// "" if no layer has memory. A layer that no longer exists counts as a layer with files.
func (s *Set) Split(ids ...string) (files []string, memory string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if l := s.layers[id]; l != nil && l.memory {
			memory = id
			continue
		}
		files = append(files, id)
	}
	return files, memory
}

// kinds contains layers, grouped by their contents.
type kinds struct {
	memory  []string // layers with memory
	files   []string // all other layers: outside and own
	outside []string // layers that represent an object outside
	own     []string // layers with their own files
	shared  int      // number of own layers that were created for sharing
}

// kinds groups layers by their contents.
func (s *Set) kinds(ids []string) (k kinds, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		l := s.layers[id]
		switch {
		case l == nil:
			return kinds{}, fmt.Errorf("%w: %s", ErrGone, id)
		case l.memory:
			k.memory = append(k.memory, id)
			continue
		case l.outside != "":
			k.outside = append(k.outside, id)
		default:
			k.own = append(k.own, id)
			if l.shared {
				k.shared++
			}
		}
		k.files = append(k.files, id)
	}
	return k, nil
}

// Hold holds layers until [Set.Release]. It returns their directories, which are read-only. If
// one of the layers does not exist, the error is [ErrGone], and no layer is held.
func (s *Set) Hold(ids ...string) (dirs []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if s.layers[id] == nil {
			return nil, fmt.Errorf("%w: %s", ErrGone, id)
		}
	}
	for _, id := range ids {
		s.layers[id].holders++
		dirs = append(dirs, s.layers[id].dir)
	}
	return dirs, nil
}

// Release removes one holder from each layer. It deletes layers that have no other holder.
func (s *Set) Release(ids ...string) {
	s.mu.Lock()
	var unused []string
	outside := false
	for _, id := range ids {
		l := s.layers[id]
		l.holders--
		if l.holders == 0 {
			delete(s.layers, id)
			unused = append(unused, id)
			outside = outside || l.outside != ""
		}
	}
	s.mu.Unlock()
	s.remove(unused)
	if outside {
		s.options.Unneeded()
	}
}

// Keep prevents Sweep from removing layers. Keep is called if the record of a holder is unreadable.
func (s *Set) Keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unknown = true
}

// Sweep removes layers without a holder. Such layers are left over from an earlier process. After
// [Set.Keep], Sweep removes nothing. It is called once, after all recorded holders hold their layers
// again.
func (s *Set) Sweep() {
	s.mu.Lock()
	if s.unknown {
		s.mu.Unlock()
		return
	}
	var unused []string
	for id, l := range s.layers {
		if l.holders == 0 {
			delete(s.layers, id)
			unused = append(unused, id)
		}
	}
	s.mu.Unlock()
	s.remove(unused)
}

func (s *Set) remove(ids []string) {
	for _, id := range ids {
		if err := s.options.Store.Delete(store.Layers, id); err != nil { // if this fails, the next start tries again
			s.options.Logger.ErrorContext(context.Background(), "a layer that is no longer needed cannot be removed", "layer", id, "error", err)
		}
	}
}
