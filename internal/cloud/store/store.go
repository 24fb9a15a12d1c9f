package store

import (
	"context"
	"errors"
)

// Table is a set of records with ids of their own.
type Table string

// The tables.
const (
	Sandboxes Table = "sandboxes" // those that can be resumed
	Running   Table = "running"   // those that ran when the process ended, without a directory
	Keys      Table = "keys"      // API keys
)

// Record is what is stored under an id.
type Record struct {
	ID    string
	Value []byte
	Dir   string // absolute path of its directory; "": it has none
}

// Store holds the records of one cloud. It is safe for concurrent use. Close it.
type Store struct{}

// Open opens the store in dir, which it makes if need be, and removes directories that
// no record names. Only one process can have it open.
func Open(ctx context.Context, dir string) (*Store, error) { return nil, errors.ErrUnsupported }

// Temporary returns a store of which nothing outlives the process: its records are in
// memory and its directories below dir, which the caller removes after Close.
func Temporary(dir string) *Store { return &Store{} }

// Durable reports whether the store outlives the process.
func (s *Store) Durable() bool { return false }

// Seed returns the secret from which the tokens of sandboxes are derived. It is the same
// each time a store is opened.
func (s *Store) Seed() []byte { return nil }

// NewDir makes an empty directory, for Put. One that no Put has named is removed when
// the store is opened again, or by Discard.
func (s *Store) NewDir() (string, error) { return "", errors.ErrUnsupported }

// Discard removes a directory of NewDir that is not needed after all.
func (s *Store) Discard(dir string) error { return errors.ErrUnsupported }

// Put stores a record. dir is one that NewDir returned, the one that the record has
// already, or "". When it returns nil the record is on the disk, together with what is
// in dir if that was synced, and the record's former directory is gone if it was
// another one. After an error everything is as it was.
func (s *Store) Put(table Table, id string, value []byte, dir string) error {
	return errors.ErrUnsupported
}

// Note is Put for a record without a directory that a power cut may lose: it does not
// wait for the disk.
func (s *Store) Note(table Table, id string, value []byte) {}

// Delete removes a record and its directory. A record that does not exist is no error.
func (s *Store) Delete(table Table, id string) error { return errors.ErrUnsupported }

// Records returns the records of a table, ordered by id.
func (s *Store) Records(table Table) ([]Record, error) { return nil, nil }

// Close closes the store. It is idempotent.
func (s *Store) Close() error { return nil }
