package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	bolt "go.etcd.io/bbolt"
)

// about is the bucket with what concerns the whole store.
const about = "e2bctl"

var (
	schemaKey = []byte("schema")
	seedKey   = []byte("seed")
)

// migrations bring a database from each version of the schema to the next. The first
// makes a new one.
var migrations = []func(*bolt.Tx) error{
	func(tx *bolt.Tx) error {
		if err := tx.Bucket([]byte(about)).Put(seedKey, newSeed()); err != nil {
			return err
		}
		for _, table := range []Table{Sandboxes, Running, Keys} {
			if _, err := tx.CreateBucket([]byte(table)); err != nil {
				return err
			}
		}
		return nil
	},
}

// migrate brings a database to the version of the schema that this program knows.
func migrate(tx *bolt.Tx) error {
	bucket := tx.Bucket([]byte(about))
	if bucket == nil {
		if first, _ := tx.Cursor().First(); first != nil {
			return errForeign
		}
		var err error
		if bucket, err = tx.CreateBucket([]byte(about)); err != nil {
			return err
		}
	}
	version, err := schemaOf(bucket)
	if err != nil || version == len(migrations) {
		return err
	}
	if version > len(migrations) {
		return fmt.Errorf("a newer e2bctl wrote it (version %d of the schema; this one knows %d): use that e2bctl, or another directory", version, len(migrations))
	}
	for _, step := range migrations[version:] {
		if err := step(tx); err != nil {
			return err
		}
	}
	return bucket.Put(schemaKey, []byte(strconv.Itoa(len(migrations))))
}

// schemaOf returns the version of the schema, 0 for a new database.
func schemaOf(bucket *bolt.Bucket) (int, error) {
	text := bucket.Get(schemaKey)
	if text == nil {
		return 0, nil
	}
	version, err := strconv.Atoi(string(text))
	if err != nil || version < 1 {
		return 0, errors.Join(errDamaged, fmt.Errorf("its schema has the version %q", text))
	}
	return version, nil
}

func newSeed() []byte {
	seed := make([]byte, 32)
	_, _ = rand.Read(seed) // never fails
	return seed
}
