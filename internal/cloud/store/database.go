package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	databaseFile = "store.db"
	unfinished   = databaseFile + ".new"
)

// lockPatience bounds the time that openDatabase waits while another program, such as a tool for
// databases, has the database open. That program cannot be a second server, because a second server
// could not lock the directory.
const lockPatience = time.Second

// database keeps records in one file, except that it keeps each record of Store.Note in a separate
// file.
type database struct {
	dir  string
	file *os.File // file of the database; set even if bolt.Open panics
	bolt *bolt.DB
}

// openDatabase opens the database in dir. It creates a new database under another name and then
// renames it, so that store.db is always complete.
func openDatabase(dir string) (*database, error) {
	path := filepath.Join(dir, databaseFile)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = createDatabase(dir)
	case err == nil && info.Size() == 0: // bolt would turn it into a new database
		err = fmt.Errorf("%s: %w: it is empty", databaseFile, errDamaged)
	}
	if err != nil {
		return nil, err
	}
	d := &database{dir: dir}
	if err := d.open(path); err != nil {
		return nil, fmt.Errorf("%s: %w", databaseFile, err)
	}
	return d, nil
}

// createDatabase creates the database of a new store. If there are already other files, the
// store has lost its database, and createDatabase returns an error.
func createDatabase(dir string) error {
	files, err := os.ReadDir(filepath.Join(dir, published))
	if err != nil {
		return err
	}
	if len(files) > 0 {
		return fmt.Errorf("%w: %s is missing, and there are files of %d sandboxes", errDamaged, databaseFile, len(files))
	}
	path := filepath.Join(dir, unfinished)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d := &database{dir: dir}
	if err := d.open(path); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	if err := d.close(); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(dir, databaseFile)); err != nil {
		return err
	}
	return (&Store{durable: true}).flush(dir)
}

func (d *database) open(path string) error {
	err := guard(func() (err error) {
		d.bolt, err = bolt.Open(path, 0o600, &bolt.Options{
			Timeout: lockPatience, NoStatistics: true,
			OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				file, err := os.OpenFile(name, flag, mode)
				d.file = file
				return file, err
			},
		})
		if _, system := errors.AsType[syscall.Errno](err); err != nil && !system && !errors.Is(err, bolterrors.ErrTimeout) {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
		return err
	})
	if err == nil {
		err = d.migrate(migrations)
	}
	switch {
	case err == nil:
		return nil
	case d.bolt != nil:
		return errors.Join(err, d.bolt.Close())
	case errors.Is(err, errDamaged) && d.file != nil:
		unlock(d.file)
		d.file.Close()
	}
	return err
}

// guard calls a function that reads the database. It returns an error if bolt panics because
// the database is damaged, or if reading the mapped file fails.
func guard(call func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w: reading it failed: %v", errDamaged, fault)
		}
	}()
	return call()
}

func (d *database) update(change func(*bolt.Tx) error) error {
	return guard(func() error { return d.bolt.Update(change) })
}

func (d *database) view(look func(*bolt.Tx) error) error {
	return guard(func() error { return d.bolt.View(look) })
}

func (d *database) seed() (seed []byte, err error) {
	err = d.view(func(tx *bolt.Tx) error {
		seed = bytes.Clone(tx.Bucket([]byte(about)).Get(seedKey))
		return nil
	})
	return seed, err
}

func (d *database) get(table Table, id string) (entry []byte, err error) {
	err = d.view(func(tx *bolt.Tx) error {
		entry = bytes.Clone(tx.Bucket([]byte(table)).Get([]byte(id)))
		return nil
	})
	return entry, err
}

func (d *database) put(table Table, id string, entry []byte) error {
	return d.update(func(tx *bolt.Tx) error { return tx.Bucket([]byte(table)).Put([]byte(id), entry) })
}

func (d *database) delete(table Table, id string) error {
	if err := os.Remove(d.notePath(table, id)); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old, err := d.get(table, id)
	if err != nil || old == nil {
		return err
	}
	return d.update(func(tx *bolt.Tx) error { return tx.Bucket([]byte(table)).Delete([]byte(id)) })
}

// note writes a record to a separate file, and does not wait for the disk. It does not use bolt's
// file, because a power failure could destroy that whole file if bolt did not wait for the disk.
func (d *database) note(table Table, id string, entry []byte) error {
	written := filepath.Join(d.dir, staging, noteName(table, id)) // if this fails, the next start removes the file
	err := os.WriteFile(written, entry, 0o600)
	if err == nil {
		err = os.Rename(written, d.notePath(table, id))
	}
	if err != nil {
		return errors.Join(err, ignore(os.Remove(written), fs.ErrNotExist)) // for example, the disk is full
	}
	return nil
}

func (d *database) notePath(table Table, id string) string {
	return filepath.Join(d.dir, noted, noteName(table, id))
}

func noteName(table Table, id string) string { return string(table) + "." + id }

func (d *database) each(table Table, visit func(id string, entry []byte)) error {
	err := d.view(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(table)).ForEach(func(id, entry []byte) error {
			visit(string(id), entry)
			return nil
		})
	})
	if err != nil {
		return err
	}
	names, err := os.ReadDir(filepath.Join(d.dir, noted))
	if err != nil {
		return err
	}
	for _, name := range names {
		of, id, _ := strings.Cut(name.Name(), ".")
		if of != string(table) || check(table, id) != nil {
			continue
		}
		entry, err := os.ReadFile(d.notePath(table, id))
		if err != nil {
			return err
		}
		visit(id, entry)
	}
	return nil
}

func (d *database) close() error { return d.bolt.Close() }
