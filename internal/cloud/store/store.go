package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Table is a set of records. The ids of different tables are independent.
type Table string

// Tables of a store.
const (
	Sandboxes Table = "sandboxes" // sandboxes that can be resumed
	Running   Table = "running"   // sandboxes that ran when the process ended; without a directory
	Keys      Table = "keys"      // API keys
	Layers    Table = "layers"    // files with which sandboxes begin
	Templates Table = "templates" // templates, with the ids of their layers
	Volumes   Table = "volumes"   // volumes; the directory contains the files
	Secrets   Table = "secrets"   // secrets, whose values are sealed
	Cache     Table = "cache"     // results of build steps, with the ids of their layers
	Images    Table = "images"    // container images that were fetched, with the ids of their layers
	Uploads   Table = "uploads"   // archives for builds; each is a file in its record's directory
)

var tables = []Table{Sandboxes, Running, Keys, Layers, Templates, Volumes, Cache, Uploads, Secrets, Images}

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("store: it is closed")

// Record is a stored record.
type Record struct {
	ID    string
	Value []byte
	Dir   string    // absolute path of the record's directory; "": none
	Saved time.Time // time when Put received Dir; zero without Dir
}

// Store keeps the records of one cloud. It is safe for concurrent use. The caller must close
// it.
type Store struct {
	dir     string
	durable bool
	seed    []byte
	notes   []string
	release func() error // releases the lock of the directory

	mu      sync.RWMutex // write-locked while records change
	records records      // nil after Close

	measuring sync.Mutex
	sizes     map[string]int64 // keyed by directory; only directories of volumes change

	removing   sync.RWMutex   // read-locked while directories are removed
	background sync.WaitGroup // goroutines that remove directories
	leaving    leaving        // directories that are being removed
	emptying   sync.Mutex     // held while one directory is removed
	closing    atomic.Bool    // the store is being closed: removals stop, and the next start removes the rest

	before atomic.Pointer[func(Change) error] // called before each change, see Before
}

// records stores the encoded records of the tables.
type records interface {
	get(table Table, id string) (entry []byte, err error) // nil if the record does not exist
	put(table Table, id string, entry []byte) error
	note(table Table, id string, entry []byte) error
	delete(table Table, id string) error
	each(table Table, visit func(id string, entry []byte)) error
	close() error
}

// Open opens the store in dir. It creates dir if necessary, and removes directories that no
// record names. Only one process can have the store open. If another process has it open, the error
// is an [InUseError]. Open never removes unreadable records and their files.
func Open(ctx context.Context, dir string) (_ *Store, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s := &Store{dir: dir, durable: true}
	if err = s.open(ctx); err == nil {
		return s, nil
	}
	if _, ok := errors.AsType[*InUseError](err); !ok {
		err = fmt.Errorf("the state directory %s: %w", dir, explain(err))
	}
	return nil, errors.Join(err, s.Close())
}

func (s *Store) open(ctx context.Context) (err error) {
	if err = claim(s.dir); err != nil {
		return err
	}
	if s.release, err = lock(s.dir); err != nil {
		return err
	}
	if err = s.makeDirectories(); err != nil {
		return err
	}
	if s.notes, err = inspect(s.dir); err != nil {
		return err
	}
	base, err := openDatabase(s.dir)
	if err != nil {
		return err
	}
	s.records = base
	if s.seed, err = base.seed(); err != nil {
		return err
	}
	if err = s.rehearse(); err != nil { // after the database, so that directories without a database are refused
		return err
	}
	return s.sweep(ctx)
}

// Temporary returns a store that exists only until Close. The records are in memory. The
// directories are below dir. Close removes dir.
func Temporary(dir string) *Store {
	return &Store{dir: dir, seed: newSeed(), records: memory{}, release: func() error { return nil }}
}

// Durable reports whether the store outlives the process.
func (s *Store) Durable() bool { return s.durable }

// Seed returns the secret from which the tokens of sandboxes are derived. It never changes
// during the life of a store.
func (s *Store) Seed() []byte { return slices.Clone(s.seed) }

// Notes returns warnings about the file system of the store, and about damaged records.
func (s *Store) Notes() []string { return slices.Clone(s.notes) }

// Put stores a record, and returns the new path of the record's directory. dir is a directory from
// NewDir, or the record's current directory, or "". Put renames a directory from NewDir. If Put
// succeeds, the record is on the disk. The contents of dir that the caller synced are on the disk,
// too. If the record had another directory, Put removes that directory in the background, see
// [Store.Wait]. If Put fails, nothing has changed.
func (s *Store) Put(table Table, id string, value []byte, dir string) (string, error) {
	former, to, err := s.put(table, id, value, dir)
	if err != nil {
		return "", fmt.Errorf("storing %s in %s of %s: %w", id, table, s.dir, explain(err))
	}
	if former != "" && former != to {
		s.drop(former)
	}
	return to, nil
}

func (s *Store) put(table Table, id string, value []byte, dir string) (former, to string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.find(table, id)
	if err != nil {
		return "", "", err
	}
	e := entry{Saved: old.Saved, value: value}
	publish := dir != "" && dir != old.Dir
	switch {
	case publish:
		if to, err = s.publish(table, id, dir); err != nil {
			return "", "", err
		}
		e.Dir, e.Saved = filepath.Base(to), time.Now()
	case dir != "":
		e.Dir, to = filepath.Base(dir), dir
	default:
		e.Saved = time.Time{}
	}
	err = s.putRecord(table, id, e)
	if err != nil && publish {
		err = errors.Join(err, s.rename(to, dir))
	}
	return old.Dir, to, err
}

// Note stores a record without a directory. Unlike Put, it does not wait for the disk, and it
// ignores errors. A power failure may lose the record. The caller must use either only Put or only
// Note for a table.
func (s *Store) Note(table Table, id string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if check(table, id) == nil && s.records != nil {
		_ = s.records.note(table, id, entry{value: value}.encode())
	}
}

// Delete removes a record, and then its directory in the background, see [Store.Wait]. It
// succeeds if the record does not exist. It also removes an unreadable record.
func (s *Store) Delete(table Table, id string) error {
	dir, err := s.delete(table, id)
	s.measuring.Lock()
	delete(s.sizes, dir)
	s.measuring.Unlock()
	if err != nil {
		return fmt.Errorf("deleting %s in %s of %s: %w", id, table, s.dir, explain(err))
	}
	if dir != "" {
		s.drop(dir)
	}
	return nil
}

func (s *Store) delete(table Table, id string) (dir string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.find(table, id)
	if err != nil && !errors.Is(err, errRecord) { // a damaged record is removed; the next start removes its files
		return "", err
	}
	return old.Dir, s.deleteRecord(table, id)
}

// find returns the record with an id. If there is no such record, find returns a zero Record and no
// error.
func (s *Store) find(table Table, id string) (Record, error) {
	if err := check(table, id); err != nil {
		return Record{}, err
	}
	if s.records == nil {
		return Record{}, ErrClosed
	}
	text, err := s.records.get(table, id)
	if err != nil || text == nil {
		return Record{}, err
	}
	return s.decode(id, text)
}

// Records returns the readable records of a table, ordered by id. The error names the
// unreadable records.
func (s *Store) Records(table Table) ([]Record, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.records == nil {
		return nil, ErrClosed
	}
	var all []Record
	var damaged []error
	err := s.records.each(table, func(id string, text []byte) {
		record, err := s.decode(id, text)
		if err != nil {
			damaged = append(damaged, err)
			return
		}
		all = append(all, record)
	})
	if err = errors.Join(append(damaged, err)...); err != nil {
		err = fmt.Errorf("reading %s of %s: %w", table, s.dir, err)
	}
	slices.SortFunc(all, func(a, b Record) int { return strings.Compare(a.ID, b.ID) })
	return all, err
}

// Wait waits until the directories of removed records are removed. On some disks, this takes
// seconds if there are many files. So call Wait only if necessary.
func (s *Store) Wait() { s.background.Wait() }

// Freed waits until the disk space of all records that have been removed so far is free, or
// until ctx ends.
func (s *Store) Freed(ctx context.Context) { s.leaving.wait(ctx) }

// Close closes the store. If the removal of a directory is not finished, the next opening of the
// store finishes it. Close is idempotent.
func (s *Store) Close() error {
	s.closing.Store(true)
	defer s.background.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removing.Lock()
	defer s.removing.Unlock()
	var err error
	if s.records != nil {
		err = s.records.close()
		s.records = nil
		if !s.durable {
			err = errors.Join(err, s.removeAll())
		}
	}
	if s.release != nil {
		err = errors.Join(err, s.release())
		s.release = nil
	}
	return err
}

// check returns an error if the table or the id of a record is not valid. Their text becomes a part
// of the names of the record's directory and of its file in notes.
func check(table Table, id string) error {
	if !slices.Contains(tables, table) {
		return fmt.Errorf("there is no table %q", string(table))
	}
	plain := func(r rune) bool {
		return r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if id == "" || len(id) > 128 || strings.ContainsFunc(id, func(r rune) bool { return !plain(r) }) {
		return fmt.Errorf("%q is no id: only letters, digits, - and _ are, at most 128", id)
	}
	return nil
}
