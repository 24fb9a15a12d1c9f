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

// files are what each file of a sandbox may hold: what was written last and answered, and behind it
// what was written since and not answered, of which each may be there or not. absent stands for
// no file.
type files map[string][]string

const absent = "\x00absent"

// or returns what files may hold if they are those of one or of the other.
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

// copied returns files as they are now.
func (f files) copied() files {
	c := maps.Clone(f)
	for path, held := range c {
		c[path] = slices.Clone(held)
	}
	return c
}

// box is a sandbox with what must be true of it.
type box struct {
	sb     *sandbox.Sandbox
	seen   int // how often the server had been started when it was known to be there
	starts int // likewise; -1: it is looked at before it is used again
	files  files
	// vars are the variables of its kernel. Where fresh may be true, the kernel may be a new
	// one, which has none.
	vars  map[string]int
	fresh bool
	// kept are its files as of the last pause, with which it outlives the server: nil if it
	// was never paused. For a pause that was not answered, either may be so, unanswered.
	kept, unanswered files
	wavers           bool // a pause that was not answered may still come
}

func newBox(sb *sandbox.Sandbox, starts int, has files) *box {
	return &box{sb: sb, seen: starts, starts: starts, files: has, vars: map[string]int{}}
}

// died takes note that the server was killed: the box is as it was paused last.
func (b *box) died() {
	b.vars, b.fresh = map[string]int{}, true
	switch {
	case b.unanswered == nil:
		b.files = b.kept
	case b.kept == nil:
		b.files = b.files.or(b.unanswered) // it may have come later
	default:
		b.files = b.files.or(b.unanswered).or(b.kept)
	}
	b.kept, b.unanswered = b.files.copied(), nil
}

// mayBeGone reports whether the sandbox may end with a server: whether no pause of it was
// answered. One that was not answered may never have come.
func (b *box) mayBeGone() bool { return b.kept == nil }

// read reads a file of a sandbox.
func read(ctx context.Context, sb *sandbox.Sandbox, path string) (string, error) {
	data, err := sb.Files.Read(ctx, path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return absent, nil
	}
	return string(data), err
}

// heldBy describes what a file holds.
func heldBy(text string) string {
	if text == absent {
		return "no file"
	}
	return fmt.Sprintf("%d bytes beginning with %.40q", len(text), text)
}
