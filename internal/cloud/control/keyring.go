package control

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

const (
	// maxAPIKeys bounds the number of keys. The first key is not counted.
	maxAPIKeys = 100
	// useNoted is the minimum time between two stored updates of a key's last use.
	useNoted = time.Minute

	keyPrefix   = "e2b_"
	keyBytes    = 20
	firstKeyID  = "00000000-0000-4000-8000-000000000001"
	keyVersion  = 1
	hashPrefix  = "$sha256$"
	shownPrefix = 2 // number of characters of a key that its mask shows
	shownSuffix = 4
)

// apiKey describes a key without its value. Its JSON is stored.
type apiKey struct {
	Version   int
	ID        string `json:"-"`
	Name      string
	Hash      string
	Mask      keyMask
	CreatedAt time.Time
	LastUsed  time.Time

	noted time.Time // the value of LastUsed in the store
	rate  *bucket
}

// keyMask is the visible part of a key.
type keyMask struct {
	Prefix      string `json:"prefix"`
	ValueLength int    `json:"valueLength"`
	ValuePrefix string `json:"maskedValuePrefix"`
	ValueSuffix string `json:"maskedValueSuffix"`
}

// keyring holds the keys of the only team. The cloud is started with the first key; the store has
// all other keys. A server with key files has only the keys in its files.
type keyring struct {
	store  *store.Store
	files  *KeyFiles // nil: the keys are the first key and the keys in the store
	logger *slog.Logger
	limit  RateLimit

	mu      sync.Mutex
	byHash  map[string]*apiKey
	byID    map[string]*apiKey
	version int // version of files when they were last read; -1: they have not been read
}

func newKeyring(o Options) *keyring {
	k := &keyring{store: o.Store, files: o.KeyFiles, logger: o.Logger, limit: o.Rate, byHash: map[string]*apiKey{}, byID: map[string]*apiKey{}}
	if k.files != nil {
		k.version = -1 // they have not been read
		return k
	}
	ctx := context.Background()
	all, err := o.Store.Records(store.Keys)
	if err != nil {
		k.logger.ErrorContext(ctx, "API keys that cannot be read are left alone", "error", err)
	}
	for _, record := range all {
		key := &apiKey{ID: record.ID}
		err := json.Unmarshal(record.Value, key)
		if err != nil || key.Version != keyVersion || !strings.HasPrefix(key.Hash, hashPrefix) {
			k.logger.ErrorContext(ctx, "an API key that cannot be read is left alone", "key", record.ID, "error", err)
			continue
		}
		key.noted = key.LastUsed
		k.addInMemory(key)
	}
	// The first key is added last, so that no stored key can replace it.
	k.addInMemory(&apiKey{ID: firstKeyID, Name: "local", Hash: hashOf(o.Key), Mask: maskOf(o.Key), CreatedAt: time.Now().UTC()})
	return k
}

// addInMemory adds a key in memory.
func (k *keyring) addInMemory(key *apiKey) {
	key.rate = newBucket(k.limit)
	k.byHash[key.Hash], k.byID[key.ID] = key, key
}

// use finds a key by its value, and updates the key's last use. It returns false if there is no
// such key.
func (k *keyring) use(value string) (*apiKey, bool) {
	hash := hashOf(value) // so that the duration of the lookup does not reveal the value
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refreshLocked()
	key, ok := k.byHash[hash]
	if !ok {
		return nil, false
	}
	key.LastUsed = time.Now().UTC()
	if k.files == nil && key.ID != firstKeyID && key.LastUsed.Sub(key.noted) >= useNoted {
		key.noted = key.LastUsed
		if err := k.save(key); err != nil {
			k.logger.WarnContext(context.Background(), "the last use of an API key was not stored", "key", key.ID, "error", err)
		}
	}
	return key, true
}

// list returns copies of all keys, oldest first.
func (k *keyring) list() []apiKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refreshLocked()
	keys := make([]apiKey, 0, len(k.byID))
	for _, key := range k.byID {
		keys = append(keys, *key)
	}
	slices.SortFunc(keys, func(a, b apiKey) int {
		if a.ID == firstKeyID || b.ID == firstKeyID {
			return strings.Compare(a.ID, b.ID) // the first key's id is the smallest
		}
		if order := a.CreatedAt.Compare(b.CreatedAt); order != 0 {
			return order
		}
		return strings.Compare(a.ID, b.ID)
	})
	return keys
}

// create creates a key. It returns the key and its value, which is not kept.
func (k *keyring) create(name string) (key apiKey, value string, err error) {
	var secret [keyBytes]byte
	_, _ = rand.Read(secret[:]) // never fails
	value = keyPrefix + hex.EncodeToString(secret[:])
	made := &apiKey{Version: keyVersion, ID: newUUID(), Name: name, Hash: hashOf(value), Mask: maskOf(value), CreatedAt: time.Now().UTC()}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.byID) > maxAPIKeys {
		return apiKey{}, "", errTooManyKeys
	}
	if err := k.save(made); err != nil {
		return apiKey{}, "", fmt.Errorf("the key was not made: %w", err)
	}
	k.addInMemory(made)
	return *made, value, nil
}

// rename changes the name of a key.
func (k *keyring) rename(id, name string) (apiKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, err := k.findLocked(id)
	if err != nil {
		return apiKey{}, err
	}
	changed := *key
	changed.Name = name
	if err := k.save(&changed); err != nil {
		return apiKey{}, fmt.Errorf("the key was not renamed: %w", err)
	}
	key.Name = name
	return changed, nil
}

// remove deletes a key, which is then refused.
func (k *keyring) remove(id string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, err := k.findLocked(id)
	if err != nil {
		return err
	}
	if err := k.store.Delete(store.Keys, id); err != nil {
		return fmt.Errorf("the key was not deleted: %w", err)
	}
	delete(k.byID, id)
	delete(k.byHash, key.Hash)
	return nil
}

func (k *keyring) findLocked(id string) (*apiKey, error) {
	key := k.byID[id]
	switch {
	case key == nil:
		return nil, errNoKey
	case id == firstKeyID:
		return nil, errFirstKey
	}
	return key, nil
}

func (k *keyring) save(key *apiKey) error {
	value, err := json.Marshal(key)
	if err == nil {
		_, err = k.store.Put(store.Keys, key.ID, value, "")
	}
	return err
}

// hashOf returns the stored hash of a key. As on the service, it is the hash of the bytes that
// the key's hexadecimal digits encode. A first key without such digits is hashed as text.
func hashOf(value string) string {
	secret := []byte(value)
	if digits, ok := strings.CutPrefix(value, keyPrefix); ok && digits == strings.ToLower(digits) {
		if decoded, err := hex.DecodeString(digits); err == nil {
			secret = decoded
		}
	}
	sum := sha256.Sum256(secret)
	return hashPrefix + base64.RawStdEncoding.EncodeToString(sum[:])
}

// maskOf returns the mask of a key. The mask of a short key shows no characters, because the hidden
// characters of such a key could be guessed.
func maskOf(value string) keyMask {
	prefix := ""
	if rest, ok := strings.CutPrefix(value, keyPrefix); ok {
		prefix, value = keyPrefix, rest
	}
	m := keyMask{Prefix: prefix, ValueLength: len(value)}
	if len(value) >= 4*(shownPrefix+shownSuffix) {
		m.ValuePrefix, m.ValueSuffix = value[:shownPrefix], value[len(value)-shownSuffix:]
	}
	return m
}

// newUUID returns a random UUID. Clients expect the id of a key to be a UUID.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return uuidOf(b)
}

// uuidOf returns bytes in the form of a random UUID.
func uuidOf(b [16]byte) string {
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
