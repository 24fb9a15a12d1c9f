package sandbox

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// Secret describes a secret, without its value.
type Secret struct {
	ID string
	// Name is in lower case.
	Name string
	// Version is 1 at first, and one more with each new value.
	Version   int
	Metadata  map[string]string
	CreatedAt time.Time
	UpdatedAt time.Time
}

func secretOf(s api.Secret) Secret { return Secret(s) }

// SecretParams describes the secret to store. It prints without the value, with fmt, slog and
// JSON.
type SecretParams struct {
	// Value is the secret value: text without line breaks, as a header can have it.
	Value string `json:"-"`
	// Metadata describes the secret. With Update, nil keeps the old metadata and an empty map
	// clears it.
	Metadata map[string]string
}

// Format writes the params without the value.
func (p SecretParams) Format(f fmt.State, verb rune) { api.SecretParams(p).Format(f, verb) }

// LogValue implements [slog.LogValuer].
func (p SecretParams) LogValue() slog.Value { return api.SecretParams(p).LogValue() }

// SecretListParams filters a list of secrets. The zero value means all.
type SecretListParams struct {
	// PageSize limits the entries of a page, 1 to 100. Zero means the service's default, 100.
	PageSize int
	// NextToken continues where the previous page ended.
	NextToken string
}

// Secrets works with secrets: values that the service puts into the requests of sandboxes,
// as [Network].Headers and [SecretRef] say, and that nobody can read back. It is safe for
// concurrent use.
type Secrets struct{ client *Client }

// Create stores a secret. Its name has letters, digits, - and _ and is stored in lower
// case. If there is a secret with that name, the error is [ErrConflict].
func (s *Secrets) Create(ctx context.Context, name string, p *SecretParams) (*Secret, error) {
	secret, err := s.client.api.Secrets.Create(ctx, name, (*api.SecretParams)(p))
	if err != nil {
		return nil, fmt.Errorf("sandbox: create secret: %w", err)
	}
	return (*Secret)(secret), nil
}

// Update replaces the value of the secret with an id or a name: requests that are sent from
// then on have the new one. If there is no such secret, the error is [ErrNotFound].
func (s *Secrets) Update(ctx context.Context, idOrName string, p *SecretParams) (*Secret, error) {
	secret, err := s.client.api.Secrets.Update(ctx, idOrName, (*api.SecretParams)(p))
	if err != nil {
		return nil, fmt.Errorf("sandbox: update secret: %w", err)
	}
	return (*Secret)(secret), nil
}

// Get describes the secret with an id or a name. If there is none, the error is
// [ErrNotFound].
func (s *Secrets) Get(ctx context.Context, idOrName string) (*Secret, error) {
	secret, err := s.client.api.Secrets.Get(ctx, idOrName)
	if err != nil {
		return nil, fmt.Errorf("sandbox: get secret: %w", err)
	}
	return (*Secret)(secret), nil
}

// List iterates over all secrets, newest first. An error is yielded at most once, as the
// last item.
func (s *Secrets) List(ctx context.Context, p *SecretListParams) iter.Seq2[Secret, error] {
	return eachAs(s.client.api.Secrets.List(ctx, (*api.SecretListParams)(p)), secretOf)
}

// Delete deletes the secret with an id or a name: requests that need it fail from then on.
// If there is none, the error is [ErrNotFound].
func (s *Secrets) Delete(ctx context.Context, idOrName string) error {
	if err := s.client.api.Secrets.Delete(ctx, idOrName); err != nil {
		return fmt.Errorf("sandbox: delete secret: %w", err)
	}
	return nil
}
