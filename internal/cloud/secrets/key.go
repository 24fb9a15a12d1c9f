package secrets

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// keySize is the size of an AES-256 key in bytes.
const keySize = 32

// EnvKey is the variable that contains the key, as 64 hexadecimal digits.
const EnvKey = "E2BCTL_SECRETS_KEY"

// A Source returns the key for sealing secrets. It is called when a secret is first stored or
// used.
type Source func() ([]byte, error)

// NewKey returns a Source with a new key, for a store that ends with this process.
func NewKey() Source {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return func() ([]byte, error) { return key, nil }
}

// KeyOf returns a Source for a key in the format of [EnvKey].
func KeyOf(text string) Source {
	return func() ([]byte, error) {
		key, err := hex.DecodeString(text)
		if err != nil || len(key) != keySize {
			return nil, fmt.Errorf("secrets: %s must be %d hexadecimal digits, as `openssl rand -hex %d` prints", EnvKey, 2*keySize, keySize)
		}
		return key, nil
	}
}

// KeyIn returns a Source for a key in a file. The file is in the directory that dir returns. No
// other user may be able to write to this directory. The Source creates the file if it is missing.
func KeyIn(dir func() (string, error)) Source {
	return func() ([]byte, error) {
		in, err := dir()
		if err != nil {
			return nil, fmt.Errorf("secrets: the directory of the key: %w", err)
		}
		path := filepath.Join(in, "key")
		key, err := readKey(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return key, err
		}
		if err := writeKey(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("secrets: writing a new key: %w", err)
		}
		return readKey(path) // another process may have been faster
	}
}

func readKey(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("secrets: %s, the key of the secrets, can be read by others: make it yours alone (chmod 600), and think of the secrets as known to them", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("secrets: %s is damaged: it must have %d hexadecimal digits; without it the secrets are lost: remove it and set them anew", path, 2*keySize)
	}
	return key, nil
}

// writeKey creates the file at path with a new key. The file is never incomplete. When writeKey
// returns, the file is on the disk, so that no secret is stored before its key.
func writeKey(path string) error {
	key := make([]byte, keySize)
	_, _ = rand.Read(key)                                    // never fails
	file, err := os.CreateTemp(filepath.Dir(path), ".key-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.WriteString(hex.EncodeToString(key) + "\n")
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Link(file.Name(), path) // fails if the file exists
	}
	return errors.Join(err, os.Remove(file.Name()))
}
