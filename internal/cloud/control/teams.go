package control

import (
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

// Properties of the only team of a local cloud.
const (
	teamID   = "00000000-0000-4000-8000-000000000000"
	teamName = templates.Team
)

var (
	errNoKey       = errorf(http.StatusNotFound, "no such API key")
	errFirstKey    = errorf(http.StatusForbidden, "this is the API key that the local cloud was started with, which cannot be changed: start it with another one")
	errKeysInFiles = errorf(http.StatusForbidden, "the API keys of this server are in files, which its operator changes: no request adds, renames or deletes one")
	errTooManyKeys = errorf(http.StatusTooManyRequests, "there are %d API keys, which is the limit: delete one that is no longer needed", maxAPIKeys)
)

// maxName bounds the length of a key's name, in characters.
const maxName = 128

// teams answers with the only team. The service creates a new key for each request; this cloud
// returns the key of the request.
func (s *Service) teams(w http.ResponseWriter, r *http.Request) error {
	type team struct {
		TeamID    string `json:"teamID"`
		Name      string `json:"name"`
		APIKey    string `json:"apiKey"`
		IsDefault bool   `json:"isDefault"`
	}
	value, _ := presented(r)
	writeJSON(w, http.StatusOK, []team{{teamID, teamName, value, true}})
	return nil
}

// keyAnswer describes a key.
type keyAnswer struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Key       string     `json:"key,omitempty"` // only in the answer to create
	Mask      keyMask    `json:"mask"`
	CreatedAt time.Time  `json:"createdAt"`
	LastUsed  *time.Time `json:"lastUsed,omitempty"`
}

func answerOf(k apiKey) keyAnswer {
	a := keyAnswer{ID: k.ID, Name: k.Name, Mask: k.Mask, CreatedAt: k.CreatedAt}
	if !k.LastUsed.IsZero() {
		a.LastUsed = &k.LastUsed
	}
	return a
}

func (s *Service) listKeys(w http.ResponseWriter, _ *http.Request) error {
	all := s.keys.list()
	answer := make([]keyAnswer, len(all))
	for i, k := range all {
		answer[i] = answerOf(k)
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// changingKeys returns a handler that refuses to change keys that are in files.
func (s *Service) changingKeys(change handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if s.options.KeyFiles != nil {
			return errKeysInFiles
		}
		return change(w, r)
	}
}

func (s *Service) createKey(w http.ResponseWriter, r *http.Request) error {
	name, err := keyName(w, r)
	if err != nil {
		return err
	}
	key, value, err := s.keys.create(name)
	if err != nil {
		return err
	}
	answer := answerOf(key)
	answer.Key = value
	writeJSON(w, http.StatusCreated, answer)
	return nil
}

func (s *Service) renameKey(w http.ResponseWriter, r *http.Request) error {
	name, err := keyName(w, r)
	if err != nil {
		return err
	}
	key, err := s.keys.rename(r.PathValue("id"), name)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, answerOf(key))
	return nil
}

func (s *Service) deleteKey(w http.ResponseWriter, r *http.Request) error {
	if err := s.keys.remove(r.PathValue("id")); err != nil {
		return err
	}
	noContent(w)
	return nil
}

func keyName(w http.ResponseWriter, r *http.Request) (string, error) {
	var q struct {
		Name string `json:"name"`
	}
	if err := decode(w, r, &q, false); err != nil {
		return "", err
	}
	if n := utf8.RuneCountInString(q.Name); n == 0 || n > maxName {
		return "", invalid("name must have 1 to %d characters", maxName)
	}
	return q.Name, nil
}

// foreignTeam reports whether a request is for a team other than the only one.
func foreignTeam(r *http.Request) bool {
	team := r.Header.Get("X-Team-Id")
	return team != "" && team != teamID
}
