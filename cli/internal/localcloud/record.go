// Package localcloud finds, starts and ends the local cloud that this user's commands share:
// the process of e2bctl local up. That process leaves its address and key in a file, and holds
// a lock as long as it runs.
package localcloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/privatedir"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Record is the information that `local up` writes for the user's other commands, to a file
// that only this user can read.
type Record struct {
	URL       string   `json:"url"`
	Key       string   `json:"apiKey"`
	Domain    string   `json:"domain"`             // the domain of the cloud with its port
	State     string   `json:"stateDir,omitempty"` // the state directory; "" means that the cloud has none
	Engine    string   `json:"engine"`
	Isolation string   `json:"isolation"`
	Env       []string `json:"env"` // environment variables, as KEY=VALUE, with which any E2B SDK uses the cloud
	// PID is the ID of the cloud's process, in the PID namespace of that process.
	PID   int       `json:"pid"`
	Since time.Time `json:"since"` // the time at which the cloud was ready, in UTC
	// Log is the path of the cloud's log file. "" means that the cloud has none.
	Log string `json:"log,omitempty"`
	// IsolationNote is the reason why the isolation is less than full. It is empty if the user
	// requested that level by name.
	IsolationNote string `json:"isolationNote,omitempty"`
	// Ask means that the cloud asks on its terminal whether a sandbox may reach a host.
	Ask bool `json:"ask,omitempty"`
	// NotEnforced are the limits that nothing enforces on this machine, each with the reason.
	NotEnforced []string `json:"notEnforced,omitempty"`
	// LimitNotes are the entries of NotEnforced for limits that the user set by a flag.
	LimitNotes []string `json:"limitNotes,omitempty"`
	// PythonNote describes the missing parts of the Python in the cloud's sandboxes.
	PythonNote string `json:"pythonNote,omitempty"`
	// StateNotes describe the dangers to the data that outlives the cloud. That data is in the state
	// directory and in the directory of the cloud's certificate authority.
	StateNotes []string `json:"stateNotes,omitempty"`
}

// ErrNone means that no local cloud is running.
var ErrNone = errors.New("no local cloud is running; start one with e2bctl local up (or e2bctl local up --background)")

// ConflictError means that another process is the local cloud, or uses its state
// directory.
type ConflictError struct {
	URL, Domain, State string            // the values of the other cloud; "" while that cloud starts or ends
	InUse              *store.InUseError // the error of a state directory that is in use; nil if that is not the cause
	Elsewhere          string            // the place of another container's cloud, if that cloud is the cause
}

func (e *ConflictError) Error() string {
	if e.InUse != nil {
		return e.InUse.Error() + " (--state-dir), or none (--ephemeral)"
	}
	if e.Elsewhere != "" {
		return "another container's local cloud has " + e.Elsewhere + ", which this one shares; have TMPDIR name a directory of this container's own"
	}
	state := "is starting or ending"
	if e.URL != "" {
		state = "already runs at " + e.URL
	}
	if e.Domain != "" {
		state += ", domain " + e.Domain
	}
	if e.State != "" {
		state += ", with the state directory " + e.State
	}
	return "a local cloud " + state + "; end it with e2bctl local down, or start one beside it with a --state-dir and a --port of its own"
}

// conflictWith returns the conflict with the local cloud that a record describes.
func conflictWith(r Record) *ConflictError {
	return &ConflictError{URL: r.URL, Domain: r.Domain, State: r.State}
}

// Place is the directory with the record of this user's local cloud. The record is valid while
// `local up` holds a lock on another file in that directory. The system releases the lock in
// whatever way the process ends.
type Place struct {
	dir string
	// others is the place of another container's local cloud, in a directory that both containers
	// share. It is "" if there is no such cloud.
	others string
}

// elsewhere takes the place of a process ID if a process holds a lock but is not visible to this
// process.
const elsewhere = -1

// AuthorityDir returns the directory that keeps the certificate authorities of this user's local
// clouds, one for each domain. AuthorityDir creates the directory if it is missing. note is the
// reason why the directory may not last, or "" if it lasts.
func AuthorityDir() (dir, note string, err error) {
	dir, note, err = privatedir.MakeLasting("tls", privatedir.State, privatedir.Runtime, privatedir.Temporary)
	if err != nil {
		return "", "", fmt.Errorf("the certificate authority of a local cloud: %w", err)
	}
	return dir, note, nil
}

// Find returns the place of this user's local cloud, and creates its directory if it is missing.
// Containers may share a home directory. If the local cloud of another container uses the place in
// that directory, Find returns a place in the directory for temporary files. A process that holds a
// claim must not call Find, because the process would lose its lock.
func Find() (Place, error) {
	place, err := findIn(privatedir.Runtime, privatedir.Cache, privatedir.Temporary)
	if err != nil {
		return Place{}, err
	}
	if holder, err := place.holder(); err != nil || holder > 0 {
		return place, err
	}
	own, err := findIn(privatedir.Temporary)
	if err != nil {
		return place, nil //nolint:nilerr // there is no choice
	}
	return choose(place, own)
}

func findIn(bases ...privatedir.Base) (Place, error) {
	dir, err := privatedir.Make("local", bases...)
	if err != nil {
		return Place{}, fmt.Errorf("the address and key of a local cloud: %w", err)
	}
	return Place{dir: dir}, nil
}

// choose returns own if the local cloud of own is running, or if the cloud of place is in another
// container. Otherwise it returns place. A local cloud keeps the place in which it started, even
// after the cloud of the other container has ended.
func choose(place, own Place) (Place, error) {
	holder, err := own.holder()
	if err != nil {
		return Place{}, err
	}
	if holder > 0 {
		return own, nil
	}
	if holder, err = place.holder(); err != nil || holder != elsewhere {
		return place, err
	}
	own.others = place.dir
	return own, nil
}

// Others returns a note if the local cloud of another container uses a place of this user, and ""
// otherwise.
func (p Place) Others() string {
	if p.others == "" {
		return ""
	}
	return "the local cloud in " + p.others + " is another container's that shares the directory; e2bctl local up --state-dir DIR --port PORT starts one here"
}

// none returns ErrNone. If [Place.Others] returns a note, none adds the note to the error.
func (p Place) none() error {
	if others := p.Others(); others != "" {
		return fmt.Errorf("%w; %s", ErrNone, others)
	}
	return ErrNone
}

func (p Place) recordFile() string { return filepath.Join(p.dir, "cloud.json") }
func (p Place) logFile() string    { return filepath.Join(p.dir, "cloud.log") }

func (p Place) openLock() (*os.File, error) {
	return os.OpenFile(filepath.Join(p.dir, "cloud.lock"), os.O_RDWR|os.O_CREATE, 0o600)
}

// Claim makes this process the user's local cloud until release is called. It returns a
// *ConflictError while another process is the local cloud.
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
	_ = os.Remove(p.recordFile()) // left by a killed one; usually there is none
	return func() {
		_ = os.Remove(p.recordFile()) // without the lock it is ignored anyway
		lock.Close()
	}, nil
}

func (p Place) conflict() error {
	record, err := p.Read()
	if conflict, elsewhere := errors.AsType[*ConflictError](err); elsewhere {
		return conflict
	}
	return conflictWith(record) // the zero Record if there is none
}

// Publish writes the record. Only the process that holds the claim may call it.
func (p Place) Publish(record Record) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return writeWhole(p.recordFile(), append(text, '\n'))
}

// Read returns the record of the running local cloud, or ErrNone.
func (p Place) Read() (Record, error) {
	pid, err := p.holder()
	if err != nil {
		return Record{}, err
	}
	switch pid {
	case 0:
		return Record{}, p.none()
	case elsewhere:
		return Record{}, &ConflictError{Elsewhere: p.dir}
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

// holder returns the ID of the process that is the local cloud. If there is no such process, it
// returns 0. If the process is not visible to this one, it returns the constant elsewhere.
func (p Place) holder() (int, error) {
	lock, err := p.openLock()
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	return lockHolder(lock)
}

// Option returns the option with which a client of package sandbox uses the cloud of the record.
func (r Record) Option() sandbox.ClientOption {
	return sandbox.WithOptions(sandbox.WithAPIKey(api.Key(r.Key)), sandbox.WithAPIURL(r.URL), sandbox.WithSandboxURL(r.URL), sandbox.WithVolumeURL(r.URL), sandbox.WithDomain(r.Domain))
}
