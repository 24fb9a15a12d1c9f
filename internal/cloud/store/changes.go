package store

import "os"

// Change is a kind of change that a store makes to its disk.
type Change string

// The changes.
const (
	MakeDirectory Change = "make a directory"
	Rename        Change = "rename a directory"
	Sync          Change = "have names outlast a loss of power"
	PutRecord     Change = "store a record"
	DeleteRecord  Change = "delete a record"
)

// Before makes the store call f before each change to its disk. If f returns an error, the
// change is not made and fails with it. It is for tests: any change of a store can fail in
// them.
func (s *Store) Before(f func(Change) error) { s.before.Store(&f) }

// may returns an error if a change must fail, for tests.
func (s *Store) may(c Change) error {
	if f := s.before.Load(); f != nil {
		return (*f)(c)
	}
	return nil
}

func (s *Store) makeDirectory(path string) error {
	if err := s.may(MakeDirectory); err != nil {
		return err
	}
	return os.Mkdir(path, 0o700)
}

func (s *Store) rename(from, to string) error {
	if err := s.may(Rename); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// flush returns when the names in a directory outlast a loss of power.
func (s *Store) flush(dir string) error {
	if err := s.may(Sync); err != nil || !s.durable {
		return err
	}
	return syncDir(dir)
}

func (s *Store) putRecord(table Table, id string, e entry) error {
	if err := s.may(PutRecord); err != nil {
		return err
	}
	return s.records.put(table, id, e.encode())
}

func (s *Store) deleteRecord(table Table, id string) error {
	if err := s.may(DeleteRecord); err != nil {
		return err
	}
	return s.records.delete(table, id)
}
