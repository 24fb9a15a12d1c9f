package cloud

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/cloud/secrets"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// openStore opens the store in the directory state. If state is "", it opens a store that ends
// with the instance.
func openStore(ctx context.Context, state, instance string) (*store.Store, error) {
	if state == "" {
		return store.Temporary(filepath.Join(instance, "state")), nil
	}
	return store.Open(ctx, state)
}

// keyOf returns the API key of the cloud. The key is derived from the store's seed, so that clients
// can use the same key after a restart. It has the format of the keys of E2B's service, because old
// clients check this format.
func keyOf(s *store.Store) string {
	hash := hmac.New(sha256.New, s.Seed())
	hash.Write([]byte("API key"))
	return "e2b_" + hex.EncodeToString(hash.Sum(nil)[:20])
}

// StateNotes returns warnings about the file system of the state directory, and about damaged
// records in that directory.
func (c *Cloud) StateNotes() []string { return c.store.Notes() }

// newInstanceDir creates the directory of a cloud's instance in the directory parent. parent must
// belong to the user. If parent is "", newInstanceDir uses e2bctl's own directory. If the cloud
// crashes, the next cloud with the same parent removes the instance's directory.
func newInstanceDir(parent string) (string, error) {
	if parent == "" {
		var err error
		if parent, err = privatedir.Make("run", privatedir.Cache, privatedir.Runtime, privatedir.Temporary); err != nil {
			return "", fmt.Errorf("directory for instances: %w", err)
		}
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", fmt.Errorf("directory for instances: %w", err)
	}
	if err := privatedir.Check(parent); err != nil {
		return "", fmt.Errorf("directory for instances: %w", err)
	}
	dir, err := os.MkdirTemp(parent, "cloud-")
	if err != nil {
		return "", fmt.Errorf("directory for instances: %w", err)
	}
	return dir, nil
}

// removeInstance removes the directory of the instance once the directory is no longer used. The
// keeper may be unable to remove a part of the directory. The next cloud then removes this part,
// and the lock file that names the directory.
func (c *Cloud) removeInstance(dir string) error {
	if c.keeper != nil {
		return c.keeper.Close()
	}
	return os.RemoveAll(dir)
}

// keyOfSecrets returns the source of the key for sealing secrets. A key file is not in the
// state directory. Therefore a copy of that directory does not reveal the secrets.
func keyOfSecrets(o Options) secrets.Source {
	switch {
	case o.SecretsKey != "":
		return secrets.KeyOf(o.SecretsKey)
	case o.State == "":
		return secrets.NewKey()
	}
	return secrets.KeyIn(func() (string, error) { return privatedir.Make("secrets", privatedir.State) })
}
