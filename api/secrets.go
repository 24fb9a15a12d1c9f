package api

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// SecretService makes the calls about secrets. It is safe for concurrent use. A secret is a value
// that the service puts into requests of sandboxes, according to the [NetworkRule] of an [Egress].
// No call returns the value.
type SecretService struct{ client *Client }

// Secret describes a secret, without its value.
type Secret struct {
	ID string `json:"secretID"`
	// Name is the name, in lower case.
	Name string `json:"name"`
	// Version is 1 at first and increases by one with each new value.
	Version   int               `json:"currentVersion"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt time.Time         `json:"createdAt"`
	UpdatedAt time.Time         `json:"updatedAt"`
}

// SecretParams describes the secret to store. Printing it with fmt, slog or JSON leaves out the
// value.
type SecretParams struct {
	// Value is the secret value, a text without line breaks, so that a header can contain it.
	Value string `json:"-"`
	// Metadata describes the secret. With Update, nil keeps the old metadata and an empty map
	// clears it.
	Metadata map[string]string
}

var (
	_ fmt.Formatter  = SecretParams{}
	_ slog.LogValuer = SecretParams{}
)

// Format writes the params without the value.
func (p SecretParams) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), struct {
		Value    Key
		Metadata map[string]string
	}{Key(p.Value), p.Metadata})
}

// LogValue implements [slog.LogValuer].
func (p SecretParams) LogValue() slog.Value {
	return slog.GroupValue(slog.Any("value", Key(p.Value)), slog.Any("metadata", p.Metadata))
}

// SecretListParams filters a list of secrets. The zero value selects all secrets.
type SecretListParams struct {
	// PageSize limits the entries of a page, 1 to 100. Zero means the service's default, 100.
	PageSize int
	// NextToken is the token of the page to return; empty means the first page.
	NextToken string
}

// SecretPage is one page of a list.
type SecretPage struct {
	Secrets []Secret
	// NextToken is the token of the next page; empty on the last page.
	NextToken string
}

type secretRequest struct {
	Name     string            `json:"name,omitempty"`
	Value    string            `json:"value"`
	Metadata map[string]string `json:"metadata,omitzero"`
}

// Create stores a secret. The name may contain letters, digits, - and _ and is stored in lower
// case. The error is [ErrConflict] if a secret with that name exists. Create is retried only
// when provably nothing was sent, or when the service answers 429.
func (s *SecretService) Create(ctx context.Context, name string, p *SecretParams) (*Secret, error) {
	return s.set(ctx, secretsPath, name, p)
}

// Update replaces the value of a secret, by its id or name. Requests sent from then on use the
// new value. The error is [ErrNotFound] when there is no such secret.
func (s *SecretService) Update(ctx context.Context, idOrName string, p *SecretParams) (*Secret, error) {
	path, err := secretPath(idOrName)
	if err != nil {
		return nil, err
	}
	return s.set(ctx, path, "", p)
}

func (s *SecretService) set(ctx context.Context, path, name string, p *SecretParams) (*Secret, error) {
	if p == nil {
		p = &SecretParams{}
	}
	secret := &Secret{}
	_, err := s.client.do(ctx, call{method: http.MethodPost, path: path, body: secretRequest{name, p.Value, p.Metadata}, once: true}, secret)
	if err != nil {
		return nil, err
	}
	return secret, nil
}

// Get describes a secret, by its id or name. The error is [ErrNotFound] when there is no
// such secret.
func (s *SecretService) Get(ctx context.Context, idOrName string) (*Secret, error) {
	path, err := secretPath(idOrName)
	if err != nil {
		return nil, err
	}
	secret := &Secret{}
	if _, err := s.client.do(ctx, call{method: http.MethodGet, path: path}, secret); err != nil {
		return nil, err
	}
	return secret, nil
}

// List iterates over all secrets, newest first, and fetches each page when it is needed. It
// yields an error at most once, as the last item. The iterator may be used again. List does not
// change p.
func (s *SecretService) List(ctx context.Context, p *SecretListParams) iter.Seq2[Secret, error] {
	var params SecretListParams
	if p != nil {
		params = *p
	}
	return pages("secrets", params.NextToken, func(token string) ([]Secret, string, error) {
		of := params
		of.NextToken = token
		page, err := s.ListPage(ctx, &of)
		if err != nil {
			return nil, "", err
		}
		return page.Secrets, page.NextToken, nil
	})
}

// ListPage returns one page of secrets.
func (s *SecretService) ListPage(ctx context.Context, p *SecretListParams) (*SecretPage, error) {
	if p == nil {
		p = &SecretListParams{}
	}
	query := url.Values{}
	setPage(query, p.PageSize, p.NextToken)
	secrets, head, err := list[Secret](ctx, s.client, "a secret", call{method: http.MethodGet, path: secretsPath, query: query})
	if err != nil {
		return nil, err
	}
	return &SecretPage{secrets, head.header.Get(protocol.HeaderNextToken)}, nil
}

// Delete deletes a secret, by its id or name. Requests that need it fail from then on. The
// error is [ErrNotFound] when there is no such secret.
func (s *SecretService) Delete(ctx context.Context, idOrName string) error {
	path, err := secretPath(idOrName)
	if err != nil {
		return err
	}
	_, err = s.client.do(ctx, call{method: http.MethodDelete, path: path}, nil)
	return err
}

const secretsPath = "/secrets"

func secretPath(idOrName string) (string, error) {
	return objectPath(secretsPath+"/", "secret", idOrName, "")
}
