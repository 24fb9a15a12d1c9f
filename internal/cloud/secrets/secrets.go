package secrets

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

const (
	// Max bounds the number of secrets.
	Max = 1000
	// MaxValue bounds the value of a secret in bytes, because servers refuse larger headers.
	MaxValue = 32 << 10

	maxName = 128
	// recordVersion is the version of the stored format.
	recordVersion = 1
	idPrefix      = "sec_"
)

// Bounds of the metadata of a secret.
const (
	maxEntries       = 32
	maxMetadataKey   = 128
	maxMetadataValue = 1024
	maxMetadata      = 8192
)

var (
	// ErrNotFound reports that there is no such secret.
	ErrNotFound = errors.New("secrets: no such secret")
	// ErrExists reports that another secret already has the name.
	ErrExists = errors.New("secrets: there is a secret with that name")
	// ErrTooMany reports that the registry already has [Max] secrets.
	ErrTooMany = fmt.Errorf("secrets: there are %d, which is the limit", Max)
	// ErrSealed reports that a value cannot be opened with the key.
	ErrSealed = errors.New("secrets: the value was sealed with another key, or is damaged")
)

// An InvalidError describes an invalid name, value or metadata of a secret.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return "secrets: " + e.Reason }

// Secret describes a secret, without its value.
type Secret struct {
	ID        string
	Name      string
	Version   int // version of the value, beginning with 1
	Metadata  map[string]string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// record is a secret as stored.
type record struct {
	Version int
	Secret  Secret
	Sealed  []byte // nonce and ciphertext
}

// Options configure a [Registry].
type Options struct {
	Store  *store.Store // closed by the caller after the last use of a secret
	Key    Source
	Logger *slog.Logger // nil: no log
}

// Registry contains the secrets of one cloud. It is safe for concurrent use.
type Registry struct {
	store *store.Store
	aead  func() (cipher.AEAD, error)

	mu     sync.Mutex
	byID   map[string]record
	byName map[string]string // maps names to ids
	listed []Secret
}

// New returns the secrets in a store. It does not change unreadable records.
func New(o Options) *Registry {
	log := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	ctx := context.Background()
	r := &Registry{store: o.Store, byID: map[string]record{}, byName: map[string]string{}}
	r.aead = sync.OnceValues(func() (cipher.AEAD, error) { return open(o.Key) })
	all, err := o.Store.Records(store.Secrets)
	if err != nil {
		log.ErrorContext(ctx, "secrets that cannot be read are left alone", "error", err)
	}
	for _, entry := range all {
		var rec record
		err := json.Unmarshal(entry.Value, &rec)
		if err == nil && (rec.Version != recordVersion || rec.Secret.ID != entry.ID) {
			err = fmt.Errorf("its version is %d, and this program knows %d", rec.Version, recordVersion)
		}
		if err != nil {
			log.ErrorContext(ctx, "a secret that cannot be read is left alone", "secret", entry.ID, "error", err)
			continue
		}
		r.holdLocked(rec)
	}
	return r
}

func open(source Source) (cipher.AEAD, error) {
	key, err := source()
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// sealedUnder returns the text to which the value of the secret is bound.
func (s *Secret) sealedUnder() string { return fmt.Sprintf("%s %d", s.ID, s.Version) }

// Create creates a secret. Its name is stored in lower case. The errors include an
// [*InvalidError], [ErrExists] and [ErrTooMany].
func (r *Registry) Create(name, value string, metadata map[string]string) (Secret, error) {
	name = strings.ToLower(name)
	if err := errors.Join(checkName(name), checkValue(value), checkMetadata(metadata)); err != nil {
		return Secret{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.findLocked(name); err == nil {
		return Secret{}, ErrExists
	}
	if len(r.byID) >= Max {
		return Secret{}, ErrTooMany
	}
	now := time.Now().UTC()
	return r.putLocked(Secret{ID: newID(now), Name: name, Version: 1, Metadata: metadata, CreatedAt: now, UpdatedAt: now}, value)
}

// Update finds a secret by id or name, and replaces the value of this secret. If metadata is not
// nil, Update also replaces the metadata.
func (r *Registry) Update(idOrName, value string, metadata map[string]string) (Secret, error) {
	if err := errors.Join(checkValue(value), checkMetadata(metadata)); err != nil {
		return Secret{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, err := r.findLocked(idOrName)
	if err != nil {
		return Secret{}, err
	}
	s := rec.Secret
	s.Version++
	s.UpdatedAt = time.Now().UTC()
	if metadata != nil {
		s.Metadata = metadata
	}
	return r.putLocked(s, value)
}

func (r *Registry) putLocked(s Secret, value string) (Secret, error) {
	sealed, err := r.Seal(value, s.sealedUnder())
	if err != nil {
		return Secret{}, err
	}
	s.Metadata = maps.Clone(s.Metadata)
	rec := record{Version: recordVersion, Secret: s, Sealed: sealed}
	text, err := json.Marshal(rec)
	if err != nil {
		return Secret{}, err
	}
	if _, err := r.store.Put(store.Secrets, s.ID, text, ""); err != nil {
		return Secret{}, err
	}
	r.holdLocked(rec)
	return s, nil
}

// holdLocked puts a secret into the registry's memory, in place of its previous version.
func (r *Registry) holdLocked(rec record) {
	r.byID[rec.Secret.ID], r.byName[rec.Secret.Name] = rec, rec.Secret.ID
	r.listed = byCreation.Put(r.listed, rec.Secret)
}

// Get returns a secret by id or name. If the secret does not exist, the error is [ErrNotFound].
func (r *Registry) Get(idOrName string) (Secret, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, err := r.findLocked(idOrName)
	return rec.Secret, err
}

// Value returns the value of the secret that is called name. The errors are [ErrNotFound] and
// [ErrSealed].
func (r *Registry) Value(name string) (string, error) {
	r.mu.Lock()
	rec, err := r.findLocked(name)
	r.mu.Unlock()
	if err != nil {
		return "", err
	}
	return r.Unseal(rec.Sealed, rec.Secret.sealedUnder())
}

// Seal returns value in sealed form, which can be stored. [Registry.Unseal] opens the sealed value
// if it is called with the same boundTo.
func (r *Registry) Seal(value, boundTo string) ([]byte, error) {
	aead, err := r.aead()
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, []byte(value), []byte(boundTo)), nil
}

// Unseal returns the value that Seal sealed. If the value was sealed with another key, or is bound
// to another text, the error is [ErrSealed].
func (r *Registry) Unseal(sealed []byte, boundTo string) (string, error) {
	aead, err := r.aead()
	if err != nil {
		return "", err
	}
	value, err := aead.Open(nil, nil, sealed, []byte(boundTo))
	if err != nil {
		return "", ErrSealed
	}
	return string(value), nil
}

// Position returns the position of the secret in lists.
func (s *Secret) Position() ordered.Position { return ordered.Position{At: s.CreatedAt, ID: s.ID} }

var byCreation ordered.By[Secret] = func(s Secret) ordered.Position { return s.Position() }

// Page returns at most limit secrets that follow a position, newest first. A nil position
// stands before the first secret.
func (r *Registry) Page(after *ordered.Position, limit int) []Secret {
	r.mu.Lock()
	defer r.mu.Unlock()
	return byCreation.Page(r.listed, after, limit, nil)
}

// Delete deletes a secret by id or name. Later requests that need the secret fail.
func (r *Registry) Delete(idOrName string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, err := r.findLocked(idOrName)
	if err != nil {
		return err
	}
	if err := r.store.Delete(store.Secrets, rec.Secret.ID); err != nil {
		return err
	}
	delete(r.byID, rec.Secret.ID)
	delete(r.byName, rec.Secret.Name)
	r.listed = byCreation.Delete(r.listed, rec.Secret.Position())
	return nil
}

func (r *Registry) findLocked(idOrName string) (record, error) {
	if rec, ok := r.byID[idOrName]; ok {
		return rec, nil
	}
	if id, ok := r.byName[strings.ToLower(idOrName)]; ok {
		return r.byID[id], nil
	}
	return record{}, ErrNotFound
}

// ValidName reports whether name is valid for a secret.
func ValidName(name string) bool { return checkName(strings.ToLower(name)) == nil }

func checkName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-_"
	switch {
	case name == "" || len(name) > maxName || strings.Trim(name, letters) != "":
		return &InvalidError{fmt.Sprintf("name must have 1 to %d letters, digits, hyphens and underscores", maxName)}
	case strings.HasPrefix(name, idPrefix):
		return &InvalidError{"name must not begin with " + idPrefix + ", as ids do"}
	}
	return nil
}

func checkValue(value string) error {
	switch {
	case value == "" || len(value) > MaxValue:
		return &InvalidError{fmt.Sprintf("value must have 1 to %d bytes", MaxValue)}
	case !httpguts.ValidHeaderFieldValue(value) || strings.TrimSpace(value) != value:
		return &InvalidError{"value must be what a header can have: no line breaks, no other control characters, no spaces at its ends"}
	}
	return nil
}

func checkMetadata(metadata map[string]string) error {
	total := 0
	for key, value := range metadata {
		total += len(key) + len(value)
		if key == "" || len(key) > maxMetadataKey || len(value) > maxMetadataValue {
			return &InvalidError{fmt.Sprintf("metadata must have keys of 1 to %d bytes and values of at most %d", maxMetadataKey, maxMetadataValue)}
		}
	}
	if len(metadata) > maxEntries || total > maxMetadata {
		return &InvalidError{fmt.Sprintf("metadata must have at most %d entries and %d bytes", maxEntries, maxMetadata)}
	}
	return nil
}

// newID returns an id that begins with the time. It is a UUID of version 7 in 26 characters.
func newID(now time.Time) string {
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	var uuid [16]byte
	_, _ = rand.Read(uuid[:]) // never fails
	binary.BigEndian.PutUint64(uuid[:], uint64(now.UnixMilli())<<16|uint64(binary.BigEndian.Uint16(uuid[6:])))
	uuid[6], uuid[8] = uuid[6]&0x0f|0x70, uuid[8]&0x3f|0x80
	high, low := binary.BigEndian.Uint64(uuid[:]), binary.BigEndian.Uint64(uuid[8:])
	var text [26]byte
	for i := range slices.Backward(text[:]) {
		text[i] = alphabet[low&31]
		low, high = low>>5|high<<59, high>>5
	}
	return idPrefix + string(text[:])
}
