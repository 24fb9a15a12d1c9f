package sandbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/pip"
)

// DefaultMaxWheelBytes is the default limit of the bytes of wheels in the cache of this
// machine.
const DefaultMaxWheelBytes = 2 << 30

// WithWheelCache sets the directory of this machine in which [Packages.InstallLock] caches wheels,
// and the limit of their bytes. A later sandbox that needs a cached wheel needs no index. If
// directory is empty, the wheels are in a directory of the user's cache directory. A maxBytes of 0
// means [DefaultMaxWheelBytes]; a negative maxBytes disables the cache. The least recently used
// wheels are removed first. Programs may share a directory.
//
// Without this option, wheels are cached only for services on this machine, such as the local
// cloud. For a remote service, uploading a wheel from this machine takes longer than downloading it
// in the sandbox from an index.
//
// A wheel is identified by the hash in a lock. Before a wheel from a sandbox enters the cache, its
// hash is checked. Therefore no sandbox can change the packages that another sandbox
// installs.
func WithWheelCache(directory string, maxBytes int64) HandleOption {
	return handleOption(func(c *config) error {
		c.wheels = &wheelCache{directory: directory, limit: maxBytes}
		return nil
	})
}

// wheelCache is a directory of wheels, named by their hashes. The zero value uses the defaults. A
// new file has a temporary name, and is renamed to its final name when it is complete.
type wheelCache struct {
	directory string
	limit     int64
}

// partPrefix is the prefix of the names of incomplete files. An incomplete file older than partAge
// was abandoned by its writer.
const (
	partPrefix = "part-"
	partAge    = time.Hour
)

// wheelCacheOf returns the cache for sandboxes at an address.
func wheelCacheOf(given *wheelCache, address string) wheelCache {
	if given != nil {
		return *given
	}
	u, err := url.Parse(address)
	if err != nil || u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
		return wheelCache{limit: -1}
	}
	return wheelCache{}
}

func (c wheelCache) enabled() bool { return c.limit >= 0 }

func (c wheelCache) path(name string) (string, error) {
	if c.directory != "" {
		return filepath.Join(c.directory, name), nil
	}
	user, err := os.UserCacheDir()
	return filepath.Join(user, "e2bctl", "wheels", name), err
}

// open returns a wheel with one of the hashes, or nil. It removes a wheel that was corrupted on
// the disk.
func (c wheelCache) open(sums []string) *os.File {
	for _, sum := range sums {
		path, err := c.path(sum)
		if err != nil || !c.enabled() {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		hash := sha256.New()
		if _, err = io.Copy(hash, f); err == nil && hex.EncodeToString(hash.Sum(nil)) == sum {
			if _, err = f.Seek(0, io.SeekStart); err == nil {
				now := time.Now()
				_ = os.Chtimes(path, now, now) // trim uses this time as that of the last use
				return f
			}
		}
		f.Close()
		_ = os.Remove(path)
	}
	return nil
}

// add stores the content of r if it has one of the hashes.
func (c wheelCache) add(sums []string, r io.Reader) (err error) {
	limit := cmp.Or(c.limit, DefaultMaxWheelBytes)
	path, err := c.path("")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	part, err := os.CreateTemp(path, partPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(part.Name())
		}
	}()
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(part, hash), io.LimitReader(r, limit+1))
	if err := errors.Join(err, part.Close()); err != nil {
		return err
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	switch {
	case n > limit:
		return fmt.Errorf("it has more than the %d bytes that may be kept", limit)
	case !slices.Contains(sums, sum):
		return fmt.Errorf("its hash is %s, which the lock does not have", sum)
	}
	if err := os.Rename(part.Name(), filepath.Join(path, sum)); err != nil {
		return err
	}
	return c.trim(path, sum, limit)
}

// trim removes the least recently used wheels until the remaining wheels together have at most
// limit bytes. The wheel with the hash added is the newest: the clock of files may be too coarse to tell.
func (c wheelCache) trim(directory, added string, limit int64) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	var kept []fs.FileInfo
	total := int64(0)
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			continue // another program has removed it
		}
		switch {
		case pip.IsSHA256(info.Name()):
			kept = append(kept, info)
			total += info.Size()
		case strings.HasPrefix(info.Name(), partPrefix) && time.Since(info.ModTime()) > partAge:
			_ = os.Remove(filepath.Join(directory, info.Name()))
		}
	}
	slices.SortFunc(kept, func(a, b fs.FileInfo) int {
		switch added {
		case a.Name():
			return 1
		case b.Name():
			return -1
		}
		return a.ModTime().Compare(b.ModTime())
	})
	for _, info := range kept {
		if total <= limit {
			return nil
		}
		if err := os.Remove(filepath.Join(directory, info.Name())); err == nil {
			total -= info.Size()
		}
	}
	return nil
}
