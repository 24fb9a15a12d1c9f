// Package localcloud finds, starts and ends the local cloud that this user's
// commands share: the process of e2bctl local up. It leaves its address and key in
// a file, and holds a lock as long as it runs.
package localcloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/privatedir"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Record is what `local up` writes for the user's other commands, to a file
// that only this user can read.
type Record struct {
	URL       string   `json:"url"`
	Key       string   `json:"apiKey"`
	Domain    string   `json:"domain"`             // with its port
	State     string   `json:"stateDir,omitempty"` // the state directory; "": none
	Engine    string   `json:"engine"`
	Isolation string   `json:"isolation"`
	Env       []string `json:"env"` // KEY=VALUE, which make any E2B SDK use the cloud
	// Log is the file that its log is written to; "": none.
	Log string `json:"log,omitempty"`
	// IsolationNote is why the isolation is less than full, unless it was asked for by name.
	IsolationNote string `json:"isolationNote,omitempty"`
	// PythonNote is what the Python of its sandboxes lacks.
	PythonNote string `json:"pythonNote,omitempty"`
	// StateNotes are what can go wrong with what the state directory keeps.
	StateNotes []string `json:"stateNotes,omitempty"`
}

// ErrNone means that no local cloud is running.
var ErrNone = errors.New("no local cloud is running; start one with e2bctl local up (or e2bctl local up --background)")

// ConflictError means that another process is the local cloud, or uses its state
// directory.
type ConflictError struct {
	URL, Domain, State string            // "" while it starts or ends
	InUse              *store.InUseError // of a state directory
}

func (e *ConflictError) Error() string {
	if e.InUse != nil {
		return e.InUse.Error() + " (--state-dir), or none (--ephemeral)"
	}
	state := "is starting or ending"
	if e.URL != "" {
		state = "already runs at " + e.URL + ", domain " + e.Domain
	}
	if e.State != "" {
		state += ", with the state directory " + e.State
	}
	return "a local cloud " + state + "; end it with e2bctl local down"
}

// conflictWith is the conflict with the local cloud of a record.
func conflictWith(r Record) *ConflictError {
	return &ConflictError{URL: r.URL, Domain: r.Domain, State: r.State}
}

// Place is the directory with the record of this user's local cloud. The record
// is valid while `local up` holds a lock on a file beside it: the system
// releases the lock however the process ends.
type Place struct{ dir string }

// AuthorityDir returns the directory that keeps the certificate authorities of this
// user's local clouds, one for each domain. It exists once AuthorityDir has returned.
func AuthorityDir() (string, error) {
	dir, err := privatedir.Make("tls", privatedir.State, privatedir.Runtime, privatedir.Temporary)
	if err != nil {
		return "", fmt.Errorf("the certificate authority of a local cloud: %w", err)
	}
	return dir, nil
}

// Find returns the place of this user, which exists once Find has returned.
func Find() (Place, error) {
	dir, err := privatedir.Make("local", privatedir.Runtime, privatedir.Cache, privatedir.Temporary)
	if err != nil {
		return Place{}, fmt.Errorf("the address and key of a local cloud: %w", err)
	}
	return Place{dir}, nil
}

func (p Place) recordFile() string { return filepath.Join(p.dir, "cloud.json") }
func (p Place) logFile() string    { return filepath.Join(p.dir, "cloud.log") }

func (p Place) openLock() (*os.File, error) {
	return os.OpenFile(filepath.Join(p.dir, "cloud.lock"), os.O_RDWR|os.O_CREATE, 0o600)
}

// Claim makes this process the user's local cloud until release is called. It
// fails with a *ConflictError while another process is.
func (p Place) Claim() (release func(), err error) {
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

func (p Place) conflict() error {
	record, _ := p.Read() // the zero Record if there is none
	return conflictWith(record)
}

// Publish writes the record. Only the holder of the claim may call it.
func (p Place) Publish(record Record) error {
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

// Read returns the record of the running local cloud, or ErrNone.
func (p Place) Read() (Record, error) {
	pid, err := p.holder()
	if err != nil {
		return Record{}, err
	}
	if pid == 0 {
		return Record{}, ErrNone
	}
	text, err := os.ReadFile(p.recordFile())
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, ErrNone // it is just starting or ending
	}
	if err != nil {
		return Record{}, err
	}
	var record Record
	if err := json.Unmarshal(text, &record); err != nil {
		return Record{}, fmt.Errorf("%s is damaged: %w; run e2bctl local down and start again", p.recordFile(), err)
	}
	return record, nil
}

// holder returns the process that is the local cloud, or 0 when there is none.
func (p Place) holder() (int, error) {
	lock, err := p.openLock()
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	return lockHolder(lock)
}

// Options point package sandbox at the recorded cloud.
func (r Record) Options() []sandbox.Option {
	return []sandbox.Option{sandbox.WithAPIKey(api.Key(r.Key)), sandbox.WithAPIURL(r.URL), sandbox.WithSandboxURL(r.URL), sandbox.WithVolumeURL(r.URL)}
}
