package storetest

import (
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// Damage makes a record unreadable. dir is the directory of a closed store.
func Damage(t *testing.T, dir string, table store.Table, id string) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, "store.db"), 0o600, nil)
	must.Do(t, err)
	err = db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte(table)).Put([]byte(id), []byte("{")) })
	if err != nil {
		t.Error(err)
	}
	must.Do(t, db.Close())
}
