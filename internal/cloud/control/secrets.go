package control

import (
	"errors"
	"net/http"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/secrets"
)

// secretAnswer describes a secret without its value.
type secretAnswer struct {
	SecretID       string            `json:"secretID"`
	Name           string            `json:"name"`
	CurrentVersion int               `json:"currentVersion"`
	Metadata       map[string]string `json:"metadata"`
	CreatedAt      time.Time         `json:"createdAt"`
	UpdatedAt      time.Time         `json:"updatedAt"`
}

func answerSecret(w http.ResponseWriter, status int, s secrets.Secret) {
	writeJSON(w, status, secretAnswerOf(s))
}

func secretAnswerOf(s secrets.Secret) secretAnswer {
	answer := secretAnswer{s.ID, s.Name, s.Version, s.Metadata, s.CreatedAt, s.UpdatedAt}
	if answer.Metadata == nil {
		answer.Metadata = map[string]string{}
	}
	return answer
}

func (s *Service) listSecrets(w http.ResponseWriter, r *http.Request) error {
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	page, err := pageOf(w, query, s.options.Secrets.Page, (*secrets.Secret).Position)
	if err != nil {
		return err
	}
	answer := make([]secretAnswer, len(page))
	for i, one := range page {
		answer[i] = secretAnswerOf(one)
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// secretRequest sets a secret. The value must not appear in an error or in a log.
type secretRequest struct {
	Name     string            `json:"name"`
	Value    string            `json:"value"`
	Metadata map[string]string `json:"metadata"`
}

func (s *Service) createSecret(w http.ResponseWriter, r *http.Request) error {
	var q secretRequest
	if err := decode(w, r, &q, false); err != nil {
		return err
	}
	made, err := s.options.Secrets.Create(q.Name, q.Value, q.Metadata)
	if err != nil {
		return secretError(err, q.Name)
	}
	answerSecret(w, http.StatusCreated, made)
	return nil
}

func (s *Service) getSecret(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	found, err := s.options.Secrets.Get(id)
	if err != nil {
		return secretError(err, id)
	}
	answerSecret(w, http.StatusOK, found)
	return nil
}

func (s *Service) updateSecret(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Value    string            `json:"value"`
		Metadata map[string]string `json:"metadata"`
	}
	if err := decode(w, r, &q, false); err != nil {
		return err
	}
	id := r.PathValue("id")
	changed, err := s.options.Secrets.Update(id, q.Value, q.Metadata)
	if err != nil {
		return secretError(err, id)
	}
	answerSecret(w, http.StatusOK, changed)
	return nil
}

func (s *Service) deleteSecret(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if err := s.options.Secrets.Delete(id); err != nil {
		return secretError(err, id)
	}
	noContent(w)
	return nil
}

// secretError returns the answer for an error about the secret name.
func secretError(err error, name string) error {
	if e, ok := errors.AsType[*secrets.InvalidError](err); ok {
		return invalid("%s", e.Reason)
	}
	switch {
	case errors.Is(err, secrets.ErrNotFound):
		return errorf(http.StatusNotFound, "Secret %q doesn't exist or you don't have access to it", bounded(name))
	case errors.Is(err, secrets.ErrExists):
		return errorf(http.StatusConflict, "there is a secret %q already", bounded(name))
	case errors.Is(err, secrets.ErrTooMany):
		return errorf(http.StatusTooManyRequests, "there are %d secrets, which is the limit: delete one that is no longer needed", secrets.Max)
	}
	return err
}
