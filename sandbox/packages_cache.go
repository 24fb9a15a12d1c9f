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

// DefaultWheelCache is how many bytes of wheels are kept on this machine unless
// [WithWheelCache] says otherwise.
const DefaultWheelCache = 2 << 30

// WithWheelCache says where on this machine [Packages.InstallLock] keeps the
// wheels it installs, and how many bytes of them: a sandbox that wants the same
// gets them from here and needs no index. An empty directory means one in the
// user's cache directory, 0 bytes mean [DefaultWheelCache], less than 0 that
// nothing is kept. The wheels used least lately go first. Programs may share a
// directory.
//
// Without this option wheels are kept for services on this machine, such as the
// local cloud: to one that is far, uploading them takes longer than its index.
//
// A wheel is known by the hash that a lock has, and what a sandbox gives is
// hashed here before it is kept: no sandbox can change what another installs.
func WithWheelCache(directory string, bytes int64) Option {
	return func(c *config) error {
		c.wheels = &wheelCache{directory: directory, limit: bytes}
		return nil
	}
}

// wheelCache is a directory of wheels by their hashes. The zero value has the
// defaults. Files appear whole, by a rename.
type wheelCache struct {
	directory string
	limit     int64
}

// partPrefix begins the names of files that are being written, and partAge is
// after when one belongs to nobody.
const (
	partPrefix = "part-"
	partAge    = time.Hour
)

// wheelCacheOf gives the cache for sandboxes at an address.
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

func (c wheelCache) on() bool { return c.limit >= 0 }

func (c wheelCache) path(name string) (string, error) {
	if c.directory != "" {
		return filepath.Join(c.directory, name), nil
	}
	user, err := os.UserCacheDir()
	return filepath.Join(user, "e2bctl", "wheels", name), err
}

// open gives the wheel of one of some hashes, or nil. One that was spoiled on
// the disk is removed.
func (c wheelCache) open(sums []string) *os.File {
	for _, sum := range sums {
		path, err := c.path(sum)
		if err != nil || !c.on() {
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
				_ = os.Chtimes(path, now, now) // it was used, which trim goes by
				return f
			}
		}
		f.Close()
		_ = os.Remove(path)
	}
	return nil
}

// add keeps what r gives, if it is what one of the hashes is of.
func (c wheelCache) add(sums []string, r io.Reader) (err error) {
	limit := cmp.Or(c.limit, DefaultWheelCache)
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
	return c.trim(path, limit)
}

// trim removes wheels until they fit, those used least lately first.
func (c wheelCache) trim(directory string, limit int64) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	var kept []fs.FileInfo
	total := int64(0)
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			continue // another program removed it
		}
		switch {
		case pip.IsSHA256(info.Name()):
			kept = append(kept, info)
			total += info.Size()
		case strings.HasPrefix(info.Name(), partPrefix) && time.Since(info.ModTime()) > partAge:
			_ = os.Remove(filepath.Join(directory, info.Name()))
		}
	}
	slices.SortFunc(kept, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
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
