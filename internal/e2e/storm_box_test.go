//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/e2bctl/e2bctl/sandbox"
)

// files are the possible contents of each file of a sandbox: the last content whose write was
// answered, and behind it later ones whose writes were not answered. Any of these may be in the
// file or not. absent stands for no file.
type files map[string][]string

const absent = "\x00absent"

// or returns the possible contents if the files are those of f or of other.
func (f files) or(other files) files {
	both := files{}
	for _, each := range []files{f, other} {
		for path := range each {
			both[path] = slices.Concat(f.of(path), other.of(path))
		}
	}
	return both
}

func (f files) of(path string) []string {
	if held := f[path]; held != nil {
		return held
	}
	return []string{absent}
}

// copied returns a copy of the files.
func (f files) copied() files {
	c := maps.Clone(f)
	for path, held := range c {
		c[path] = slices.Clone(held)
	}
	return c
}

// box is a sandbox with its expected state.
type box struct {
	sb     *sandbox.Sandbox
	seen   int // the number of starts of the server when it was last known to exist
	starts int // likewise; -1 means that it is checked before it is used again
	files  files
	// vars are the variables of its kernel. If fresh may be true, the kernel may be a new one,
	// which has none.
	vars  map[string]int
	fresh bool
	// kept are its files at the last pause, with which it outlives the server; nil if it was
	// never paused. After a pause that was not answered, either kept or unanswered may be its
	// files.
	kept, unanswered files
	wavers           bool // a pause that was not answered may still happen
}

func newBox(sb *sandbox.Sandbox, starts int, has files) *box {
	return &box{sb: sb, seen: starts, starts: starts, files: has, vars: map[string]int{}}
}

// died records that the server was killed: the box then has the state of its last pause.
func (b *box) died() {
	b.vars, b.fresh = map[string]int{}, true
	switch {
	case b.unanswered == nil:
		b.files = b.kept
	case b.kept == nil:
		b.files = b.files.or(b.unanswered) // the pause may have happened later
	default:
		b.files = b.files.or(b.unanswered).or(b.kept)
	}
	b.kept, b.unanswered = b.files.copied(), nil
}

// mayBeGone reports whether the sandbox may end with a server, because no pause of it was
// answered. A pause that was not answered may never have happened.
func (b *box) mayBeGone() bool { return b.kept == nil }

// read reads a file of a sandbox.
func read(ctx context.Context, sb *sandbox.Sandbox, path string) (string, error) {
	data, err := sb.Files.Read(ctx, path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return absent, nil
	}
	return string(data), err
}

// heldBy describes the content of a file.
func heldBy(text string) string {
	if text == absent {
		return "no file"
	}
	return fmt.Sprintf("%d bytes beginning with %.40q", len(text), text)
}
