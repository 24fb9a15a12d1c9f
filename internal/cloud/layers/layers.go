// Package layers keeps the files with which sandboxes begin: snapshots, forks and builds save
// them from a sandbox. A layer exists for as long as it has a holder. A holder whose layer must
// outlast the server records that, and holds the layer again when it reads the record.
//
// If the engine lets sandboxes share directories, a layer has the files that one sandbox wrote
// above its own layers: a sandbox has a chain of layers. Otherwise a layer has all files of a
// sandbox, and each sandbox begins with a copy of one. The files below may be kept elsewhere,
// such as an image in a daemon: a layer without files then stands for them.
//
// The memory of a sandbox is a layer of its own kind: the last layer of a chain may have it,
// and then a new sandbox goes on with that memory. No layer is put above it.
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

// ErrGone is returned for a layer that does not exist, or no longer exists.
var ErrGone = errors.New("layers: the files are gone")

// ErrNotShared is returned for a layer that needs sharing, if sandboxes cannot share files.
var ErrNotShared = errors.New("layers: sandboxes cannot share files on this machine")

// Use is the last use of a holder of layers that can be made again. Dropping it makes room.
type Use struct {
	Name   string
	At     time.Time
	Layers []string // the layers that it holds
	Drop   func() error
}

// Sharing lets sandboxes share directories, instead of each beginning with a copy.
type Sharing interface {
	// Merge merges such directories, lowest first, into one, in an empty directory.
	Merge(ctx context.Context, dirs []string, to string) error
}

// Save saves the files of a sandbox to dir, an empty directory. If share is set and its engine
// can do it, Save makes a directory that other sandboxes can share. It reports whether it did.
type Save func(dir string, share bool) (shared bool, err error)

// Options configure a [Set].
type Options struct {
	Store *store.Store
	// Sharing returns the way in which sandboxes share directories; if it is nil or returns
	// nil, they begin with copies. It is called for the first layer.
	Sharing func() Sharing
	// Unneeded is called when a layer of [Set.Outside] has no holder any longer; nil: it is not
	// called.
	Unneeded func()
	Logger   *slog.Logger // nil: no log
}

// Set holds the layers of a store. It is safe for concurrent use.
type Set struct {
	options Options
	sharing func() Sharing

	mu      sync.Mutex
	layers  map[string]*layer
	unknown bool // there may be unknown holders
}

type layer struct {
	dir     string
	shared  bool
	memory  bool   // it has memory, and no files
	outside string // the name of the thing that it stands for; "": its own files
	holders int
}

// record is the stored record of a layer, besides its files.
type record struct {
	CreatedAt time.Time
	Shared    bool   // it is a directory that sandboxes share
	Memory    bool   `json:",omitempty"` // it has memory, and no files
	Outside   string `json:",omitempty"` // the name of the thing outside that it stands for
}

// Open returns the layers of a store. Nobody holds them yet: see [Set.Sweep].
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

// Add makes a layer of the files of a sandbox, which save saves. The caller holds the layer. If Add
// fails, nothing of the layer is left.
func (s *Set) Add(save Save) (id string, err error) {
	return s.add(record{}, func(dir string) (bool, error) { return save(dir, s.sharing() != nil) })
}

// Make is Add with a function that makes a directory for sharing. If sandboxes do not share
// directories, the error is [ErrNotShared].
func (s *Set) Make(fill func(dir string) error) (id string, err error) {
	if s.sharing() == nil {
		return "", ErrNotShared
	}
	return s.add(record{}, func(dir string) (bool, error) { return true, fill(dir) })
}

// AddMemory makes a layer of a sandbox's memory. save saves the memory to dir, an empty directory.
// The caller holds the layer. If AddMemory fails, nothing of the layer is left.
func (s *Set) AddMemory(save func(dir string) error) (id string, err error) {
	return s.add(record{Memory: true}, func(dir string) (bool, error) { return false, save(dir) })
}

// add makes a layer of a directory that fill fills. fill reports whether sandboxes can share
// it.
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

// Outside returns the layer for a thing with this name that is kept elsewhere. The layer has no
// files: the thing is needed for as long as the layer is held. The caller holds it.
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

// Needs reports whether there is a layer of [Set.Outside] with that name.
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

// MaxChain bounds the layers of a sandbox: the search for a missing file looks into each of
// them.
const MaxChain = 12

// Chain puts the layer top, which was saved from a sandbox with the layers below, above these,
// and returns all of them, lowest first. Too many layers are merged into one. None of them has
// memory. The caller holds top before; afterwards it holds each returned layer once, and after
// an error not even top.
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

// Base has the files and the memory with which a sandbox begins.
type Base struct {
	// IDs are the layers below a layer that is saved from the sandbox, lowest first, and Layers
	// the directories that it shares.
	IDs, Layers []string
	// Files is a directory of saved files, which the sandbox copies, and Memory one of its
	// memory; "": none. Copied releases both once the sandbox runs. It is idempotent.
	Files, Memory string
	Copied        func()
	// Release releases everything. It is idempotent.
	Release func()
}

// Use holds layers for a sandbox that begins with them. If one of them does not exist, the
// error is [ErrGone].
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

// Split returns the layers of a chain with files, and the one with memory; "": none. Layers
// that no longer exist count among the former.
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

// kinds are layers by their contents.
type kinds struct {
	memory  []string // layers with memory
	files   []string // all others: outside and own
	outside []string // layers that stand for a thing outside
	own     []string // layers with files of their own
	shared  int      // number of own layers that were made for sharing
}

// kinds sorts layers by their contents.
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

// Hold holds layers until [Set.Release], and returns their directories, which are read-only. If
// one of them does not exist, the error is [ErrGone], and none is held.
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

// Release is the reverse of Hold. It removes layers that have no other holder.
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

// Keep makes Sweep remove nothing: the record of a holder cannot be read.
func (s *Set) Keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unknown = true
}

// Sweep removes layers without a holder: an earlier process did not get to naming or removing
// them. It is called once, when all recorded holders hold their layers again.
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
		if err := s.options.Store.Delete(store.Layers, id); err != nil { // the next start tries again
			s.options.Logger.ErrorContext(context.Background(), "a layer that is no longer needed cannot be removed", "layer", id, "error", err)
		}
	}
}
