package sshserver

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// HostAlias is the name of all sandboxes in the file of known hosts. All of them have the same host
// key, because the server runs on the client's machine.
const HostAlias = "e2bctl"

// Keys are the keys of one user. The files belong to e2bctl. They are made once and then reused.
type Keys struct {
	Host       ssh.Signer    // the key by which clients recognise the server
	Client     ssh.PublicKey // the only key that the server accepts
	ClientFile string        // the file of the client's private key
	KnownHosts string        // the file that contains the server's public key, as [HostAlias]
}

// OpenKeys reads the keys in dir, and creates those that are missing. Processes that create them at
// the same time end with the same keys. OpenKeys refuses a key file that other users can read.
func OpenKeys(dir string) (Keys, error) {
	keys := Keys{ClientFile: filepath.Join(dir, "id_ed25519"), KnownHosts: filepath.Join(dir, "known_hosts")}
	client, err := openKey(keys.ClientFile)
	if err != nil {
		return Keys{}, err
	}
	keys.Client = client.PublicKey()
	if keys.Host, err = openKey(filepath.Join(dir, "host_ed25519")); err != nil {
		return Keys{}, err
	}
	line := []byte(knownhosts.Line([]string{HostAlias}, keys.Host.PublicKey()) + "\n")
	// A wrong file would make every ssh fail, so it is written again.
	if present, err := os.ReadFile(keys.KnownHosts); err == nil && bytes.Equal(present, line) {
		return keys, nil
	}
	return keys, place(keys.KnownHosts, line, os.Rename)
}

// openKey reads a private key, and creates it if the file is missing.
func openKey(path string) (ssh.Signer, error) {
	key, err := readKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, HostAlias)
	if err != nil {
		return nil, err
	}
	// A link, unlike a rename, does not replace the file that another process made in the meantime.
	if err := place(path, pem.EncodeToMemory(block), os.Link); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return readKey(path)
}

func readKey(path string) (ssh.Signer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	// Windows has no such permissions: there the profile of the user protects the file.
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s has the mode %#o, so others may have read this key: remove it, and the next e2bctl ssh-config makes a new one", path, mode)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := ssh.ParsePrivateKey(content)
	if err != nil {
		return nil, fmt.Errorf("%s is no private key: remove it, and the next e2bctl ssh-config makes a new one: %w", path, err)
	}
	return key, nil
}

// place writes a file that only this user can read, and moves it to path when it is complete.
func place(path string, content []byte, move func(from, to string) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-*") // with the mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }() // a link to it stays
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return move(file.Name(), path)
}
