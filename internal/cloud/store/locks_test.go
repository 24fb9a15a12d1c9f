package store

import (
	"context"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestNoCallKeepsALock checks that the locks of a store are free after each call, also if the call fails.
func TestNoCallKeepsALock(t *testing.T) {
	t.Parallel()
	s := Temporary(t.TempDir()) // closed by one of the calls: that would wait for a lock that is kept
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	newDir := func() string {
		dir, err := s.NewDir()
		must.Do(t, err)
		return dir
	}
	dir, spare := "", ""
	for _, call := range []struct {
		name string
		do   func()
	}{
		{"NewDir", func() { dir = newDir() }}, {"NewDir again", func() { spare = newDir() }},
		{"Put", func() { dir, _ = s.Put(Volumes, "a", []byte("1"), dir) }}, {"Put of another directory", func() { dir, _ = s.Put(Volumes, "a", []byte("1"), newDir()) }},
		{"Put of a foreign directory", func() { _, _ = s.Put(Volumes, "a", nil, "/none") }}, {"Put without an id", func() { _, _ = s.Put(Volumes, "", nil, "") }},
		{"Note", func() { s.Note(Running, "a", nil) }}, {"Note without an id", func() { s.Note(Running, "", nil) }},
		{"Records", func() { _, _ = s.Records(Volumes) }},
		{"Usage that is given up", func() { _, _ = s.Usage(ended, Volumes) }}, {"Usage", func() { _, _ = s.Usage(t.Context(), Volumes) }},
		{"Discard", func() { _ = s.Discard(spare) }}, {"Discard of nothing", func() { _ = s.Discard(spare) }}, {"Discard of a foreign directory", func() { _ = s.Discard("/none") }},
		{"Delete", func() { _ = s.Delete(Volumes, "a") }}, {"Delete of nothing", func() { _ = s.Delete(Volumes, "a") }}, {"Delete without an id", func() { _ = s.Delete(Volumes, "") }},
		{"drop of nothing", func() { s.drop(dir) }}, {"Freed", func() { s.Freed(t.Context()) }}, {"Freed, given up", func() { s.Freed(ended) }},
		{"Close", func() { must.Do(t, s.Close()) }}, {"Close again", func() { must.Do(t, s.Close()) }},
		{"NewDir after the end", func() { _, _ = s.NewDir() }}, {"Put after the end", func() { _, _ = s.Put(Volumes, "a", nil, "") }},
		{"Records after the end", func() { _, _ = s.Records(Volumes) }}, {"Delete after the end", func() { _ = s.Delete(Volumes, "a") }},
		{"Discard after the end", func() { _ = s.Discard(spare) }}, {"drop after the end", func() { s.drop(dir) }},
	} {
		call.do()
		s.Wait()
		for name, lock := range map[string]interface {
			TryLock() bool
			Unlock()
		}{"of the records": &s.mu, "of the sizes": &s.measuring, "of removals": &s.removing, "of one removal": &s.emptying, "of what leaves": &s.leaving.mu} {
			if !lock.TryLock() {
				t.Fatalf("%s keeps the lock %s", call.name, name)
			}
			lock.Unlock()
		}
		if n := len(s.leaving.each); n > 0 {
			t.Fatalf("%s: %d directories are still leaving", call.name, n)
		}
	}
}
