package builds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// MaxUpload bounds the size of an archive in bytes.
const MaxUpload = 2 << 30

// archiveName is the name of an archive's file in the directory of its record.
const archiveName = "archive"

// ErrCutOff is returned for an archive that is shorter than its announced size.
var ErrCutOff = errors.New("builds: the archive is cut off")

// Uploads are the archives from which steps copy files. The key of an archive is a hash of its
// files, which the client computed. Archives are untrusted: only a sandbox unpacks them.
// Uploads is safe for concurrent use.
type Uploads struct {
	store *store.Store

	mu      sync.Mutex // also held while a change is written to the store
	entries map[string]*upload
}

type upload struct {
	dir string
	uploadRecord
}

// uploadRecord is the stored record of an archive. The archive itself is a file.
type uploadRecord struct {
	Size int64
	Used time.Time
}

// OpenUploads returns the archives in a store.
func OpenUploads(s *store.Store, logger *slog.Logger) *Uploads {
	u := &Uploads{store: s, entries: map[string]*upload{}}
	all, err := s.Records(store.Uploads)
	if err != nil {
		logger.WarnContext(context.Background(), "archives that cannot be read have to be uploaded again", "error", err)
	}
	for _, r := range all {
		var record uploadRecord
		if r.Dir == "" || json.Unmarshal(r.Value, &record) != nil {
			_ = s.Delete(store.Uploads, r.ID) // if this fails, the next start tries again
			continue
		}
		u.entries[r.ID] = &upload{r.Dir, record}
	}
	return u
}

// ValidHash reports whether hash consists of 64 hexadecimal digits.
func ValidHash(hash string) bool {
	return len(hash) == 64 && strings.Trim(hash, "0123456789abcdef") == ""
}

// Has reports whether there is an archive with this hash.
func (u *Uploads) Has(hash string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.entries[hash] != nil
}

// Add stores an archive of size bytes, and replaces an earlier archive with the same hash. If
// Add fails, it leaves nothing of the new archive behind.
func (u *Uploads) Add(hash string, content io.Reader, size int64) (err error) {
	record := uploadRecord{size, time.Now().UTC()}
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	dir, err := u.store.NewDir()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, u.store.Discard(dir))
		}
	}()
	if err := writeArchive(filepath.Join(dir, archiveName), content, size); err != nil {
		return err
	}
	u.mu.Lock() // no file is opened while it is being replaced
	defer u.mu.Unlock()
	published, err := u.store.Put(store.Uploads, hash, value, dir)
	if err != nil {
		return err
	}
	u.entries[hash] = &upload{published, record}
	return nil
}

func writeArchive(path string, content io.Reader, size int64) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	switch n, err := io.Copy(file, io.LimitReader(content, size)); {
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case n < size:
		return fmt.Errorf("%w: %d of %d bytes came", ErrCutOff, n, size)
	}
	return file.Sync()
}

// open opens an archive. The file stays readable after the archive is replaced or dropped. The
// caller closes it.
func (u *Uploads) open(hash string) (file *os.File, size int64, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	entry := u.entries[hash]
	if entry == nil {
		return nil, 0, os.ErrNotExist
	}
	entry.Used = time.Now().UTC()
	file, err = os.Open(filepath.Join(entry.dir, archiveName))
	return file, entry.Size, err
}

// sizes returns the size of each archive in bytes.
func (u *Uploads) sizes() map[string]int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := map[string]int64{}
	for hash, entry := range u.entries {
		all[hash] = entry.Size
	}
	return all
}

// uses returns the last use of each archive.
func (u *Uploads) uses() []layers.Use {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []layers.Use
	for hash, entry := range u.entries {
		all = append(all, layers.Use{Name: hash, At: entry.Used, Drop: func() error { return u.drop(hash) }})
	}
	return all
}

// drop removes an archive.
func (u *Uploads) drop(hash string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.entries[hash] == nil {
		return nil
	}
	if err := u.store.Delete(store.Uploads, hash); err != nil {
		return err
	}
	delete(u.entries, hash)
	return nil
}
