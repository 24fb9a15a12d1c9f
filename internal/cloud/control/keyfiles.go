package control

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// minKeyDigits is the minimum number of hexadecimal digits of a key in a file. Keys of the
	// service have exactly this number of digits.
	minKeyDigits = 2 * keyBytes
	// maxKeyFile bounds the bytes of a file of keys.
	maxKeyFile = 64 << 10
	// settled is a duration. Two changes of a file that are further apart than settled have different
	// modification times. A shorter duration is not enough, because some file systems store these
	// times in seconds.
	settled = 2 * time.Second
)

// KeyFiles are the files with the API keys of a server. They are read again when they change.
// KeyFiles is safe for concurrent use.
type KeyFiles struct {
	logger *slog.Logger

	mu      sync.Mutex
	files   []*keyFile
	version int // increases with every change of a file
}

// keyFile is a file of keys.
type keyFile struct {
	path string
	seen os.FileInfo // describes the file that was read; nil if it could not be read
	read time.Time
	sum  [sha256.Size]byte // hash of the content
	keys []apiKey
}

// OpenKeyFiles reads files of keys. Each line has one key. Empty lines and lines that begin with #
// are skipped. OpenKeyFiles returns an error if a file cannot be read, if a line is not a key, or
// if there is no key. No error contains a key.
func OpenKeyFiles(paths []string, logger *slog.Logger) (*KeyFiles, error) {
	f := &KeyFiles{logger: logger}
	for _, path := range paths {
		file := &keyFile{path: path}
		if _, err := file.load(); err != nil {
			return nil, err
		}
		f.files = append(f.files, file)
	}
	if f.Count() == 0 {
		return nil, fmt.Errorf("the files of API keys have no key: write one with `echo e2b_$(openssl rand -hex %d) > FILE`", keyBytes)
	}
	return f, nil
}

// Count returns the number of keys in the files.
func (f *KeyFiles) Count() int {
	all, _ := f.current()
	return len(all)
}

// current returns the keys in the files, and the version of the files.
func (f *KeyFiles) current() (all []apiKey, version int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, file := range f.files {
		f.refresh(file)
		all = append(all, file.keys...)
	}
	return all, f.version
}

// refresh reads a file again if it has changed. If some lines of the file are not valid, refresh
// still accepts the keys in the valid lines, so that the removal of a key always takes effect.
func (f *KeyFiles) refresh(file *keyFile) {
	if file.unchanged() {
		return
	}
	changed, err := file.load()
	if !changed {
		return
	}
	f.version++
	if err != nil {
		f.logger.ErrorContext(context.Background(), "a file of API keys has changed, but is not valid: its other keys are refused", "file", file.path, "valid", len(file.keys), "error", err)
		return
	}
	f.logger.InfoContext(context.Background(), "a file of API keys has changed", "file", file.path, "keys", len(file.keys))
}

// unchanged reports whether the file certainly did not change after it was read. It compares the
// identity of the file too: Kubernetes replaces a file by changing a link, and the new file may
// have the same size and time.
func (f *keyFile) unchanged() bool {
	info, err := os.Stat(f.path)
	if err != nil || f.seen == nil {
		return false
	}
	return os.SameFile(f.seen, info) && f.seen.Size() == info.Size() && f.seen.ModTime().Equal(info.ModTime()) && f.read.Sub(info.ModTime()) > settled
}

// load reads the file. changed reports whether the keys may differ from the keys that were read
// before. If load returns an error for invalid lines, f has the keys of the valid lines.
func (f *keyFile) load() (changed bool, err error) {
	f.read = time.Now()
	info, text, err := readBounded(f.path)
	if err != nil {
		changed = f.seen != nil
		f.seen, f.keys, f.sum = nil, nil, [sha256.Size]byte{}
		return changed, fmt.Errorf("a file of API keys: %w", err)
	}
	sum := sha256.Sum256(text)
	changed = f.seen == nil || f.sum != sum
	f.seen, f.sum = info, sum
	if changed {
		f.keys, err = f.parse(string(text))
	}
	return changed, err
}

func readBounded(path string) (info os.FileInfo, text []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return nil, nil, err
	}
	text, err = io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err == nil && len(text) > maxKeyFile {
		err = fmt.Errorf("%s is larger than %d KiB", path, maxKeyFile>>10)
	}
	return info, text, err
}

// parse returns the keys in the text of the file.
func (f *keyFile) parse(text string) (keys []apiKey, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case !isStrong(line):
			err = errors.Join(err, fmt.Errorf("%s, line %d: an API key is e2b_ and an even number of hexadecimal digits in lower case, at least %d, as `echo e2b_$(openssl rand -hex %d)` prints one", f.path, n, minKeyDigits, keyBytes))
		default:
			hash := hashOf(line)
			keys = append(keys, apiKey{ID: idOf(hash), Name: filepath.Base(f.path), Hash: hash, Mask: maskOf(line), CreatedAt: f.seen.ModTime().UTC()})
		}
	}
	return keys, err
}

// isStrong reports whether a key has the form and the length of the service's keys.
func isStrong(key string) bool {
	digits, ok := strings.CutPrefix(key, keyPrefix)
	return ok && len(digits) >= minKeyDigits && len(digits)%2 == 0 && strings.Trim(digits, "0123456789abcdef") == ""
}

// idOf returns the id of a key in a file. A key always has the same id, because idOf derives the id
// from the key's hash.
func idOf(hash string) string {
	sum := sha256.Sum256([]byte("id of " + hash))
	return uuidOf([16]byte(sum[:16]))
}

// refreshLocked replaces the keys by the keys in the files if a file has changed. A key that is still
// in the files keeps its rate and last use.
func (k *keyring) refreshLocked() {
	if k.files == nil {
		return
	}
	all, version := k.files.current()
	if version == k.version {
		return
	}
	k.version = version
	before := k.byHash
	k.byHash, k.byID = map[string]*apiKey{}, map[string]*apiKey{}
	for _, key := range all {
		if known := before[key.Hash]; known != nil {
			k.byHash[key.Hash], k.byID[key.ID] = known, known
			continue
		}
		k.addInMemory(&key)
	}
}
