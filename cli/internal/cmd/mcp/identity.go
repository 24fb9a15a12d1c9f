package mcp

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// identity contains the secrets that all servers of one user share. They are stored in a file that
// only this user can read.
type identity struct {
	// Owner is the mark by which a server finds the user's sandboxes and checkpoints.
	Owner string `json:"owner"`
	// Token is the bearer token of clients over HTTP.
	Token string `json:"token"`

	path string
}

// openIdentity reads the identity of this user, and creates one if there is none.
func openIdentity() (identity, error) {
	dir, err := privatedir.Make("mcp", privatedir.State, privatedir.Cache, privatedir.Runtime, privatedir.Temporary)
	if err != nil {
		return identity{}, fmt.Errorf("finding a directory for the token of e2bctl mcp: %w", err)
	}
	path := filepath.Join(dir, "identity.json")
	id, err := readIdentity(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	content, err := json.Marshal(identity{Owner: rand.Text(), Token: rand.Text()})
	if err != nil {
		return identity{}, err
	}
	file, err := os.CreateTemp(dir, "identity-*")
	if err != nil {
		return identity{}, err
	}
	defer func() { _ = os.Remove(file.Name()) }() // its link, made below, stays
	_, err = file.Write(append(content, '\n'))
	if err = errors.Join(err, file.Close()); err != nil {
		return identity{}, err
	}
	// A link, unlike a rename, does not replace the file that another server made in the meantime.
	if err := os.Link(file.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return identity{}, err
	}
	return readIdentity(path)
}

func readIdentity(path string) (identity, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return identity{}, err
	}
	id := identity{path: path}
	if err := json.Unmarshal(content, &id); err != nil || len(id.Owner) < 16 || len(id.Token) < 16 {
		return identity{}, fmt.Errorf("%s is damaged: remove it, and a new one is made, with another token", path)
	}
	return id, nil
}
