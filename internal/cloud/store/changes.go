package store

import "os"

// Change is a kind of change that a store makes on the disk.
type Change string

// Kinds of changes.
const (
	MakeDirectory Change = "make a directory"
	Rename        Change = "rename a directory"
	Sync          Change = "have names outlast a loss of power"
	PutRecord     Change = "store a record"
	DeleteRecord  Change = "delete a record"
)

// Before makes the store call f before each change on the disk. If f returns an error, the store
// does not make the change, and fails with this error. With Before, a test can make any change of a
// store fail.
func (s *Store) Before(f func(Change) error) { s.before.Store(&f) }

// fault returns the error with which a test makes a change fail. It returns nil if no test makes
// the change fail.
func (s *Store) fault(c Change) error {
	if f := s.before.Load(); f != nil {
		return (*f)(c)
	}
	return nil
}

func (s *Store) makeDirectory(path string) error {
	if err := s.fault(MakeDirectory); err != nil {
		return err
	}
	return os.Mkdir(path, 0o700)
}

func (s *Store) rename(from, to string) error {
	if err := s.fault(Rename); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// flush syncs a directory. When it returns, the names in the directory survive a power failure.
func (s *Store) flush(dir string) error {
	if err := s.fault(Sync); err != nil || !s.durable {
		return err
	}
	return syncDir(dir)
}

func (s *Store) putRecord(table Table, id string, e entry) error {
	if err := s.fault(PutRecord); err != nil {
		return err
	}
	return s.records.put(table, id, e.encode())
}

func (s *Store) deleteRecord(table Table, id string) error {
	if err := s.fault(DeleteRecord); err != nil {
		return err
	}
	return s.records.delete(table, id)
}
