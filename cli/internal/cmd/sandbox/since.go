package sandbox

import (
	"errors"
	"time"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// since is a flag value that accepts a time, or a duration before now. It is zero if the flag was
// not given.
type since time.Time

func (s *since) Type() string { return "TIME" }

func (s *since) String() string {
	if time.Time(*s).IsZero() {
		return ""
	}
	return time.Time(*s).Format(time.RFC3339)
}

func (s *since) Set(value string) error {
	var ago cmdutil.Duration
	if ago.Set(value) == nil {
		*s = since(time.Now().Add(-time.Duration(ago)))
		return nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return errors.New("want a duration such as 90s or 10m, or a time such as 2026-01-31T12:00:00Z")
	}
	*s = since(at)
	return nil
}
