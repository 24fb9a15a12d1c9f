package store

import (
	"crypto/rand"
	"fmt"
	"strconv"

	bolt "go.etcd.io/bbolt"
)

// about is the bucket with data about the whole store.
const about = "e2bctl"

var (
	schemaKey = []byte("schema")
	seedKey   = []byte("seed")
)

// migrations contains one function for each version of the schema. The function converts a database
// from the previous version. The first function fills a new database.
var migrations = []func(*bolt.Tx) error{
	func(tx *bolt.Tx) error {
		bucket, err := tx.CreateBucket([]byte(about))
		if err == nil {
			err = bucket.Put(seedKey, newSeed())
		}
		if err == nil {
			err = createTables(tx, Sandboxes, Running, Keys)
		}
		return err
	},
	func(tx *bolt.Tx) error { return createTables(tx, Layers, Templates, Volumes) },
	func(tx *bolt.Tx) error { return createTables(tx, Cache, Uploads) },
	func(tx *bolt.Tx) error { return createTables(tx, Secrets) },
	func(tx *bolt.Tx) error { return createTables(tx, Images) },
}

func createTables(tx *bolt.Tx, tables ...Table) error {
	for _, table := range tables {
		if _, err := tx.CreateBucket([]byte(table)); err != nil {
			return err
		}
	}
	return nil
}

// migrate converts the database to the version of the last step in steps. If the database already
// has this version, migrate changes nothing.
func (d *database) migrate(steps []func(*bolt.Tx) error) error {
	var version int
	err := d.view(func(tx *bolt.Tx) (err error) {
		version, err = schemaOf(tx)
		return err
	})
	switch {
	case err != nil:
		return err
	case version > len(steps):
		return fmt.Errorf("a newer e2bctl wrote it (version %d of the schema; this one knows %d): use that e2bctl, or another directory", version, len(steps))
	case version < len(steps):
		err = d.update(func(tx *bolt.Tx) error {
			for _, step := range steps[version:] {
				if err := step(tx); err != nil {
					return err
				}
			}
			return tx.Bucket([]byte(about)).Put(schemaKey, []byte(strconv.Itoa(len(steps))))
		})
	}
	if err != nil {
		return err
	}
	return d.view(complete)
}

// schemaOf returns the version of the schema. It returns 0 for a new database.
func schemaOf(tx *bolt.Tx) (int, error) {
	bucket := tx.Bucket([]byte(about))
	if bucket == nil {
		if first, _ := tx.Cursor().First(); first != nil {
			return 0, errForeign
		}
		return 0, nil
	}
	text := bucket.Get(schemaKey)
	version, err := strconv.Atoi(string(text))
	if err != nil || version < 1 {
		return 0, fmt.Errorf("%w: its schema has the version %q", errDamaged, text)
	}
	return version, nil
}

// complete returns an error if the database lacks the seed or a table.
func complete(tx *bolt.Tx) error {
	if len(tx.Bucket([]byte(about)).Get(seedKey)) == 0 {
		return fmt.Errorf("%w: it has no seed", errDamaged)
	}
	for _, table := range tables {
		if tx.Bucket([]byte(table)) == nil {
			return fmt.Errorf("%w: it has no table %s", errDamaged, table)
		}
	}
	return nil
}

func newSeed() []byte {
	seed := make([]byte, 32)
	_, _ = rand.Read(seed) // never fails
	return seed
}
