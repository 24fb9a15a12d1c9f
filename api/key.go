package api

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[redacted]"

// Key is a credential: an API key, or the access token of a sandbox. It prints as "[redacted]"
// with fmt verbs, slog and JSON. Only a conversion to string returns the secret.
type Key string

var (
	_ fmt.Formatter  = Key("")
	_ slog.LogValuer = Key("")
)

// Format writes "[redacted]" for every verb. It writes nothing for an empty key, so that a
// missing key can be seen.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.redacted()) }

// LogValue implements [slog.LogValuer].
func (k Key) LogValue() slog.Value { return slog.StringValue(k.redacted()) }

// MarshalText implements [encoding.TextMarshaler], which JSON also uses.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.redacted()), nil }

func (k Key) redacted() string {
	if k == "" {
		return ""
	}
	return redacted
}

// validate returns an error if a key cannot be sent in a header. It does not check the form
// otherwise, because self-hosted services have forms of their own.
func (k Key) validate() error {
	for i := range len(k) {
		if k[i] <= ' ' || k[i] > '~' {
			return fmt.Errorf("%w: character %d of %d is a space, a control character or not ASCII; copy the key again, without line breaks", ErrInvalidKey, i+1, len(k))
		}
	}
	return nil
}
