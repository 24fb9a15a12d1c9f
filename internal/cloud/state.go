package cloud

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// openStore opens the store in the directory state. If state is "", it opens a store that ends
// with the instance.
func openStore(ctx context.Context, state, instance string) (*store.Store, error) {
	if state == "" {
		return store.Temporary(filepath.Join(instance, "state")), nil
	}
	s, err := store.Open(ctx, state)
	if err != nil {
		return nil, fmt.Errorf("cloud: %w", err)
	}
	return s, nil
}

// keyOf returns the API key that belongs to a store, so that clients can still use it after a
// restart. The key has the format of the service's keys, which old clients check.
func keyOf(s *store.Store) string {
	hash := hmac.New(sha256.New, s.Seed())
	hash.Write([]byte("API key"))
	return "e2b_" + hex.EncodeToString(hash.Sum(nil)[:20])
}

// StateNotes returns warnings about the file system of the state directory, and about damaged
// records in that directory.
func (c *Cloud) StateNotes() []string { return c.store.Notes() }
