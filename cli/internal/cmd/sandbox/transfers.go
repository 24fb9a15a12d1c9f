package sandbox

import (
	"errors"
	"fmt"
	"strings"
)

// transfer is the value of one --upload or --download.
type transfer struct{ source, target string }

// uploads is a repeatable flag that accepts LOCAL:REMOTE, downloads one that
// accepts REMOTE:LOCAL. A local path may contain colons (C:\data), a remote one
// may not.
type (
	uploads   []transfer
	downloads []transfer
)

func (u *uploads) Type() string     { return "LOCAL:REMOTE" }
func (u *uploads) String() string   { return joinTransfers(*u) }
func (d *downloads) Type() string   { return "REMOTE:LOCAL" }
func (d *downloads) String() string { return joinTransfers(*d) }

func (u *uploads) Set(value string) error {
	t, err := parseTransfer(value, strings.LastIndexByte(value, ':'))
	if err != nil {
		return fmt.Errorf("want LOCAL:REMOTE, %w", err)
	}
	*u = append(*u, t)
	return nil
}

func (d *downloads) Set(value string) error {
	t, err := parseTransfer(value, strings.IndexByte(value, ':'))
	if err != nil {
		return fmt.Errorf("want REMOTE:LOCAL, %w", err)
	}
	*d = append(*d, t)
	return nil
}

func parseTransfer(value string, colon int) (transfer, error) {
	switch {
	case colon < 0:
		return transfer{}, errors.New("there is no colon")
	case colon == 0:
		return transfer{}, errors.New("the source is empty")
	case colon == len(value)-1:
		return transfer{}, errors.New("the target is empty")
	case strings.ContainsRune(value, 0):
		return transfer{}, errors.New("a path cannot contain a NUL byte")
	}
	return transfer{source: value[:colon], target: value[colon+1:]}, nil
}

func joinTransfers(ts []transfer) string {
	parts := make([]string, len(ts))
	for i, t := range ts {
		parts[i] = t.source + ":" + t.target
	}
	return strings.Join(parts, ",")
}
