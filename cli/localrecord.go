package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// localRecord is what `local up` writes for the user's other commands, to a
// file that only this user can read.
type localRecord struct {
	URL       string   `json:"url"`
	Key       string   `json:"apiKey"`
	Isolation string   `json:"isolation"`
	Env       []string `json:"env"` // KEY=VALUE, which make any E2B SDK use the cloud
}

var errNoLocalCloud = errors.New("no local cloud runs; start one with e2bctl local up (or e2bctl local up --background)")

// localPlace is the directory with the record of this user's local cloud. The
// record is valid while `local up` holds a lock on a file beside it: the system
// releases the lock however the process ends.
type localPlace struct{ dir string }

func findLocalPlace() (localPlace, error) {
	base := os.Getenv("XDG_RUNTIME_DIR")
	// After su or sudo the variable can name another user's directory.
	if base == "" || !ownDirectory(base) {
		cache, err := os.UserCacheDir()
		if err != nil {
			return localPlace{}, fmt.Errorf("finding where a local cloud leaves its address: %w; set XDG_RUNTIME_DIR or HOME", err)
		}
		base = cache
	}
	place := localPlace{dir: filepath.Join(base, "e2bctl", "local")}
	if err := os.MkdirAll(place.dir, 0o700); err != nil {
		return localPlace{}, err
	}
	if !ownDirectory(place.dir) {
		return localPlace{}, fmt.Errorf("%s can be written by others; it holds a key and must be yours alone (chmod 700)", place.dir)
	}
	return place, nil
}

func (p localPlace) recordFile() string { return filepath.Join(p.dir, "cloud.json") }
func (p localPlace) logFile() string    { return filepath.Join(p.dir, "cloud.log") }

func (p localPlace) openLock() (*os.File, error) {
	return os.OpenFile(filepath.Join(p.dir, "cloud.lock"), os.O_RDWR|os.O_CREATE, 0o600)
}

// claim makes this process the user's local cloud until release is called. It
// fails with a *conflictError while another process is.
func (p localPlace) claim() (release func(), err error) {
	lock, err := p.openLock()
	if err != nil {
		return nil, err
	}
	taken, err := lockFile(lock)
	if err == nil && !taken {
		err = p.conflict()
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	_ = os.Remove(p.recordFile()) // left by one that was killed; usually there is none
	return func() {
		_ = os.Remove(p.recordFile()) // without the lock it is ignored anyway
		lock.Close()
	}, nil
}

func (p localPlace) conflict() error {
	where := "is starting or ending"
	if record, _, err := p.read(); err == nil {
		where = "already runs at " + record.URL
	}
	return &conflictError{message: "a local cloud " + where + "; end it with e2bctl local down"}
}

// publish writes the record. Only the holder of the claim may call it.
func (p localPlace) publish(record localRecord) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(p.dir, "cloud-*.tmp") // created with mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), p.recordFile())
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// read returns the record of the running local cloud and its process, or
// errNoLocalCloud.
func (p localPlace) read() (localRecord, int, error) {
	pid, err := p.holder()
	if err != nil {
		return localRecord{}, 0, err
	}
	if pid == 0 {
		return localRecord{}, 0, errNoLocalCloud
	}
	text, err := os.ReadFile(p.recordFile())
	if errors.Is(err, fs.ErrNotExist) {
		return localRecord{}, pid, errNoLocalCloud // it is just starting or ending
	}
	if err != nil {
		return localRecord{}, pid, err
	}
	var record localRecord
	if err := json.Unmarshal(text, &record); err != nil {
		return localRecord{}, pid, fmt.Errorf("%s is damaged: %w; run e2bctl local down and start again", p.recordFile(), err)
	}
	return record, pid, nil
}

// holder returns the process that is the local cloud, or 0 when there is none.
func (p localPlace) holder() (int, error) {
	lock, err := p.openLock()
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	return lockHolder(lock)
}
