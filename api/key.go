package api

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[redacted]"

// Key is a credential: an API key, or an access token of a sandbox. It shows
// itself as "[redacted]" in fmt verbs, slog and JSON; only a conversion to
// string gives the secret.
type Key string

var (
	_ fmt.Formatter  = Key("")
	_ slog.LogValuer = Key("")
)

// Format writes "[redacted]" whatever the verb; an empty key writes nothing,
// so that its absence shows.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.shown()) }

// LogValue is what slog records.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.shown()) }

// MarshalText is what encoders write, JSON among them.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.shown()), nil }

func (k Key) shown() string {
	if k == "" {
		return ""
	}
	return redacted
}

// validate refuses a key that cannot stand in a header. Which form keys have
// is the service's business: self-hosted ones have their own.
func (k Key) validate() error {
	for i := range len(k) {
		if k[i] <= ' ' || k[i] > '~' {
			return fmt.Errorf("%w: character %d of %d is a space, a control character or not ASCII; copy the key again, without line breaks", ErrInvalidKey, i+1, len(k))
		}
	}
	return nil
}
