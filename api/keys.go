package api

import (
	"context"
	"net/http"
	"time"
)

// Team is a team of the caller.
type Team struct {
	ID   string `json:"teamID"`
	Name string `json:"name"`
	// APIKey is a key of the team. E2B's own service makes a new one for every call.
	APIKey Key `json:"apiKey"`
	// IsDefault reports whether commands use this team by default.
	IsDefault bool `json:"isDefault"`
}

// TeamService makes the calls about teams. It is safe for concurrent use.
type TeamService struct{ client *Client }

// List returns the teams of the caller. E2B's own service requires a login instead of an API key,
// and answers [ErrUnauthorized]; a local cloud has one team.
func (s *TeamService) List(ctx context.Context) ([]Team, error) {
	teams, _, err := list[Team](ctx, s.client, "a team", call{method: http.MethodGet, path: "/teams", once: true})
	return teams, err
}

// APIKey describes an API key of the team.
type APIKey struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Mask shows parts of the key.
	Mask      KeyMask   `json:"mask"`
	CreatedAt time.Time `json:"createdAt"`
	// LastUsed is the time of the last use; nil if the key was never used.
	LastUsed *time.Time `json:"lastUsed"`
	// Key is the key itself; set only by Create. Services do not return it later.
	Key Key `json:"key"`
}

// KeyMask has the parts of an API key that may be shown.
type KeyMask struct {
	// Prefix is the common beginning of the service's keys, such as "e2b_".
	Prefix string `json:"prefix"`
	// ValueLength is the number of characters after the prefix.
	ValueLength int `json:"valueLength"`
	// First contains the first few characters after the prefix, and Last the last few.
	First string `json:"maskedValuePrefix"`
	Last  string `json:"maskedValueSuffix"`
}

// String returns the key with its middle left out, such as "e2b_12...cdef".
func (m KeyMask) String() string { return m.Prefix + m.First + "..." + m.Last }

// KeyService makes the calls about the API keys of the team. E2B's own service requires a login
// instead of an API key, and answers [ErrUnauthorized]; a local cloud accepts any of its keys.
// It is safe for concurrent use.
type KeyService struct{ client *Client }

// List returns all keys of the team, without their values.
func (s *KeyService) List(ctx context.Context) ([]APIKey, error) {
	keys, _, err := list[APIKey](ctx, s.client, "a key", call{method: http.MethodGet, path: keysPath})
	return keys, err
}

// Create creates a key. Only the result of Create contains the secret value. Create is retried only
// when provably nothing was sent, or when the service answers 429.
func (s *KeyService) Create(ctx context.Context, name string) (*APIKey, error) {
	key := &APIKey{}
	if _, err := s.client.do(ctx, call{method: http.MethodPost, path: keysPath, body: keyRequest{name}, once: true}, key); err != nil {
		return nil, err
	}
	return key, nil
}

// Rename changes the name of a key. It returns [ErrNotFound] when there is no
// such key.
func (s *KeyService) Rename(ctx context.Context, id, name string) error {
	path, err := objectPath(keysPath+"/", "key", id, "")
	if err != nil {
		return err
	}
	_, err = s.client.do(ctx, call{method: http.MethodPatch, path: path, body: keyRequest{name}}, nil)
	return err
}

// Delete deletes a key. The service refuses the key from then on. It returns [ErrNotFound] when
// there is no such key.
func (s *KeyService) Delete(ctx context.Context, id string) error {
	path, err := objectPath(keysPath+"/", "key", id, "")
	if err != nil {
		return err
	}
	_, err = s.client.do(ctx, call{method: http.MethodDelete, path: path}, nil)
	return err
}

const keysPath = "/api-keys"

type keyRequest struct {
	Name string `json:"name"`
}
