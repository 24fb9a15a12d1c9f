package state

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// ErrNotFound means that the state has no value of this name.
var ErrNotFound = errors.New("no such name in the state")

// Entry is one named value of a [State].
type Entry struct {
	Name  string
	Value Value
	Hash  Hash
}

// State is a set of named values, the variables of a run. Set encodes a value at once, so later
// changes to the Go value do not change the state. The zero State is empty and ready to use. A
// State must not be copied. It is safe for concurrent use.
type State struct {
	mu      sync.Mutex
	entries map[string]Entry
}

// New returns an empty state.
func New() *State { return &State{} }

// Set encodes a value, hashes it and stores it under a name, which becomes the name of the Python
// variable. The error is a *[NameError], or an error of [Marshal] whose path begins with the name.
// With an error the state is unchanged.
//
// A [Value] is stored unchanged. An opaque Value can also be stored. But it can be sent only to the
// kernel that already has the object.
func (s *State) Set(name string, v any) error {
	if err := CheckName(name); err != nil {
		return err
	}
	value, ok := v.(Value)
	if !ok {
		var err error
		if value, err = NewValue(v); err != nil {
			return within(err, name)
		}
	}
	entry := Entry{Name: name, Value: value, Hash: value.hash()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == nil {
		s.entries = map[string]Entry{}
	}
	s.entries[name] = entry
	return nil
}

// Merge copies the values of another state into this one, and replaces values of the same
// names.
func (s *State) Merge(other *State) {
	entries := other.Entries()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == nil {
		s.entries = make(map[string]Entry, len(entries))
	}
	for _, entry := range entries {
		s.entries[entry.Name] = entry
	}
}

// Get decodes a named value into the variable that v points to, by the rules of [Unmarshal].
// The error wraps [ErrNotFound] if the state has no value of this name.
func (s *State) Get(name string, v any) error {
	value, ok := s.Value(name)
	if !ok {
		return fmt.Errorf("state: get %.64q: %w", name, ErrNotFound)
	}
	if err := value.Decode(v); err != nil {
		return within(err, name)
	}
	return nil
}

// Value returns a named value, and whether the state has it.
func (s *State) Value(name string) (Value, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, ok := s.entries[name]
	return entry.Value, ok
}

// Delete removes the value of a name from the state. It does not remove a variable that was already
// sent to a sandbox.
func (s *State) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, name)
}

// Names returns the names, sorted.
func (s *State) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.entries))
}

// Entries returns the current values, sorted by name.
func (s *State) Entries() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := make([]Entry, 0, len(s.entries))
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		entries = append(entries, s.entries[name])
	}
	return entries
}
