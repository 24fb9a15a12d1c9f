// Package layers keeps files that sandboxes begin with: what snapshots and forks saved of
// a sandbox. A layer stays for as long as somebody holds it. Who holds a layer that is to
// outlast the server records that, and holds it again when it reads the record.
package layers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// ErrGone is returned for a layer that does not exist, or no longer exists.
var ErrGone = errors.New("layers: the files are gone")

// Set holds the layers of a store. It is safe for concurrent use.
type Set struct {
	store  *store.Store
	logger *slog.Logger

	mu     sync.Mutex
	layers map[string]*layer
}

type layer struct {
	dir     string
	holders int
}

// record is what is stored of a layer besides its files.
type record struct{ CreatedAt time.Time }

// Open returns the layers of a store. Nobody holds them yet: see [Set.Sweep].
func Open(s *store.Store, logger *slog.Logger) *Set {
	set := &Set{store: s, logger: logger, layers: map[string]*layer{}}
	all, err := s.Records(store.Layers)
	if err != nil {
		logger.ErrorContext(context.Background(), "layers that cannot be read are left alone", "error", err)
	}
	for _, r := range all {
		if r.Dir != "" {
			set.layers[r.ID] = &layer{dir: r.Dir}
		}
	}
	return set
}

// Add makes a layer of what save writes to an empty directory, and syncs. The caller holds
// it. After an error nothing of it is left.
func (s *Set) Add(save func(dir string) error) (id string, err error) {
	value, err := json.Marshal(record{time.Now().UTC()})
	if err != nil {
		return "", err
	}
	dir, err := s.store.NewDir()
	if err != nil {
		return "", err
	}
	if err := save(dir); err != nil {
		return "", errors.Join(err, s.store.Discard(dir))
	}
	id = strings.ToLower(rand.Text())
	published, err := s.store.Put(store.Layers, id, value, dir)
	if err != nil {
		return "", errors.Join(err, s.store.Discard(dir))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layers[id] = &layer{dir: published, holders: 1}
	return id, nil
}

// Hold keeps layers until [Set.Release], and returns their directories, which are only to
// be read. If one of them does not exist the error is [ErrGone], and none is held.
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

// Release is the reverse of Hold. A layer that nobody else holds is removed.
func (s *Set) Release(ids ...string) {
	s.mu.Lock()
	var unused []string
	for _, id := range ids {
		l := s.layers[id]
		l.holders--
		if l.holders == 0 {
			delete(s.layers, id)
			unused = append(unused, id)
		}
	}
	s.mu.Unlock()
	s.remove(unused)
}

// Sweep removes the layers that nobody holds: what an earlier process did not come to
// name or to remove. It is called once, when all who recorded that they hold a layer do so
// again; not if there is one whose record cannot be read.
func (s *Set) Sweep() {
	s.mu.Lock()
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
		if err := s.store.Delete(store.Layers, id); err != nil { // it is tried again at the next start
			s.logger.ErrorContext(context.Background(), "a layer that is no longer needed cannot be removed", "layer", id, "error", err)
		}
	}
}
