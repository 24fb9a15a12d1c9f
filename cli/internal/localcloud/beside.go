package localcloud

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// besidePrefix begins the name of the directory of each local cloud that runs beside the user's
// local cloud.
const besidePrefix = "beside-"

// FindFor returns the place of the local cloud with the state directory state, an absolute path. If
// that cloud runs beside the user's local cloud, it has a place of its own. Otherwise its place is
// the one that [Find] returns. FindFor also returns that place if state is "".
func FindFor(state string) (Place, error) {
	place, err := Find()
	if err != nil || state == "" {
		return place, err
	}
	own := place.beside(state)
	if _, err := os.Stat(own.dir); err != nil {
		return place, nil //nolint:nilerr // none has ever run there
	}
	if holder, err := own.holder(); err != nil || holder != 0 {
		return own, err
	}
	return place, nil
}

// FindFree returns the place for a new local cloud with this state directory and a port of its own.
// If the user's local cloud has another state directory, the new cloud runs beside that cloud.
func FindFree(ctx context.Context, state string) (Place, error) {
	place, err := FindFor(state)
	if err != nil || place.Separate() {
		return place, err
	}
	if record, err := place.await(ctx); err != nil || record.State == state {
		return place, nil //nolint:nilerr // none is running, or the claim reports the problem
	}
	own := place.beside(state)
	if err := os.Mkdir(own.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return Place{}, fmt.Errorf("the address and key of a local cloud: %w", err)
	}
	return own, nil
}

// beside returns the place of a local cloud with the given state directory. That cloud runs beside
// the cloud with the place p.
func (p Place) beside(state string) Place {
	sum := sha256.Sum256([]byte(state))
	return Place{dir: filepath.Join(p.dir, besidePrefix+hex.EncodeToString(sum[:8]))}
}

// Separate reports whether p is the place of a local cloud that runs beside the user's local cloud.
// Such a place belongs to one state directory.
func (p Place) Separate() bool { return strings.HasPrefix(filepath.Base(p.dir), besidePrefix) }

// Beside returns the records of the local clouds that run beside the cloud of p.
func (p Place) Beside() ([]Record, error) {
	names, err := fs.Glob(os.DirFS(p.dir), besidePrefix+"*")
	if err != nil {
		return nil, err
	}
	var records []Record
	for _, name := range names {
		record, err := Place{dir: filepath.Join(p.dir, name)}.Read()
		if errors.Is(err, ErrNone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}
