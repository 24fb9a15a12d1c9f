package api

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[redacted]"

// Key is a credential: an API key, or the access token of a sandbox. It prints
// as "[redacted]" with fmt verbs, slog and JSON; only a conversion to string
// returns the secret.
type Key string

var (
	_ fmt.Formatter  = Key("")
	_ slog.LogValuer = Key("")
)

// Format writes "[redacted]" for every verb. For an empty key it writes
// nothing, so that a missing key is visible.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.shown()) }

// LogValue implements [slog.LogValuer].
func (k Key) LogValue() slog.Value { return slog.StringValue(k.shown()) }

// MarshalText implements [encoding.TextMarshaler], which JSON uses, too.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.shown()), nil }

func (k Key) shown() string {
	if k == "" {
		return ""
	}
	return redacted
}

// validate refuses a key that cannot be sent in a header. The form of a key is
// up to the service: self-hosted ones have their own.
func (k Key) validate() error {
	for i := range len(k) {
		if k[i] <= ' ' || k[i] > '~' {
			return fmt.Errorf("%w: character %d of %d is a space, a control character or not ASCII; copy the key again, without line breaks", ErrInvalidKey, i+1, len(k))
		}
	}
	return nil
}
