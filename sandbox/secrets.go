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
	// Name is the name, in lower case.
	Name string
	// Version is 1 at first and increases by one with each new value.
	Version   int
	Metadata  map[string]string
	CreatedAt time.Time
	UpdatedAt time.Time
}

func secretOf(s api.Secret) Secret { return Secret(s) }

// SecretParams describes the secret to store. If it is printed with fmt, slog or JSON, the value is
// left out.
type SecretParams struct {
	// Value is the secret value, a text without line breaks, so that a header can contain it.
	Value string `json:"-"`
	// Metadata describes the secret. With Update, nil keeps the old metadata and an empty map
	// clears it.
	Metadata map[string]string
}

// Format writes the params without the value.
func (p SecretParams) Format(f fmt.State, verb rune) { api.SecretParams(p).Format(f, verb) }

// LogValue implements [slog.LogValuer].
func (p SecretParams) LogValue() slog.Value { return api.SecretParams(p).LogValue() }

// SecretListParams filters a list of secrets. The zero value selects all secrets.
type SecretListParams struct {
	// PageSize limits the entries of a page, 1 to 100. Zero means the service's default, 100.
	PageSize int
	// NextToken is the token of the page to return; empty means the first page.
	NextToken string
}

// Secrets manages the secrets of the service. A secret is a value that the service puts into the
// requests of sandboxes, according to [Network].Headers and [SecretRef]. Nobody can read the value
// back. Secrets is safe for concurrent use.
type Secrets struct{ client *Client }

// Create stores a secret. The name may contain letters, digits, - and _ and is stored in lower
// case. The error is [ErrConflict] if a secret with that name exists.
func (s *Secrets) Create(ctx context.Context, name string, p *SecretParams) (*Secret, error) {
	secret, err := s.client.api.Secrets.Create(ctx, name, (*api.SecretParams)(p))
	if err != nil {
		return nil, fmt.Errorf("sandbox: create secret: %w", err)
	}
	return (*Secret)(secret), nil
}

// Update replaces the value of a secret, by its id or name. Requests sent from then on use the
// new value. The error is [ErrNotFound] if there is no such secret.
func (s *Secrets) Update(ctx context.Context, idOrName string, p *SecretParams) (*Secret, error) {
	secret, err := s.client.api.Secrets.Update(ctx, idOrName, (*api.SecretParams)(p))
	if err != nil {
		return nil, fmt.Errorf("sandbox: update secret: %w", err)
	}
	return (*Secret)(secret), nil
}

// Get describes a secret, by its id or name. The error is [ErrNotFound] if there is no such
// secret.
func (s *Secrets) Get(ctx context.Context, idOrName string) (*Secret, error) {
	secret, err := s.client.api.Secrets.Get(ctx, idOrName)
	if err != nil {
		return nil, fmt.Errorf("sandbox: get secret: %w", err)
	}
	return (*Secret)(secret), nil
}

// List iterates over all secrets, newest first. It yields an error at most once, as the last
// item.
func (s *Secrets) List(ctx context.Context, p *SecretListParams) iter.Seq2[Secret, error] {
	return eachAs(s.client.api.Secrets.List(ctx, (*api.SecretListParams)(p)), secretOf)
}

// Delete deletes a secret, by its id or name. Requests that need the secret fail from then on. The
// error is [ErrNotFound] if there is no such secret.
func (s *Secrets) Delete(ctx context.Context, idOrName string) error {
	if err := s.client.api.Secrets.Delete(ctx, idOrName); err != nil {
		return fmt.Errorf("sandbox: delete secret: %w", err)
	}
	return nil
}
