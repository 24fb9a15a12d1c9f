package archive

import (
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// ErrSameName means that the target's file system treats two names of an archive as the same name,
// so that the second file would replace the first.
var ErrSameName = errors.New("the file system of the target does not tell it from another name of the archive")

// names finds different names in one archive that the target's file system treats as the same name.
// Such file systems are common on macOS and Windows. Such names differ only in case or, except on
// Windows, in the encoding of accents.
type names struct {
	seed maphash.Seed
	seen map[uint64]uint64 // maps the hash of a folded name to the hash of its spelling
	// learn has tested the file system; seen is nil if the file system distinguishes such names
	decided bool
}

// check returns an error if an earlier name in the archive spells name, or a directory in the path
// of name, differently.
func (n *names) check(name string) error {
	if n.decided && n.seen == nil {
		return nil
	}
	if n.seen == nil {
		n.seed, n.seen = maphash.MakeSeed(), make(map[uint64]uint64)
	}
	var spelled, folded maphash.Hash
	spelled.SetSeed(n.seed)
	folded.SetSeed(n.seed)
	end := 0
	for part := range strings.SplitSeq(name, string(filepath.Separator)) {
		end += len(part)
		_, _ = spelled.WriteString(part + "/") // never fails
		_, _ = folded.WriteString(fold(part) + "/")
		before, seen := n.seen[folded.Sum64()]
		if seen && before != spelled.Sum64() {
			return fmt.Errorf("%w: %q differs from it only in case, or in how accents are encoded; download to a file system that tells them apart, or rename one in the sandbox", ErrSameName, name[:end])
		}
		n.seen[folded.Sum64()] = spelled.Sum64()
		end++
	}
	return nil
}

// learn tests whether the file system distinguishes two names that differ only in case. It tests
// this with the file called name, which was just written.
func (n *names) learn(root *os.Root, name string) {
	if n.decided {
		return
	}
	dir, base := filepath.Split(name)
	other := strings.Map(swapCase, base)
	if other == base {
		return
	}
	written, err := root.Lstat(name)
	if err != nil {
		return // it was skipped
	}
	n.decided = true
	if found, err := root.Lstat(dir + other); err != nil || !os.SameFile(written, found) {
		n.seen = nil
	}
}

// fold returns a form of a name. If a file system that does not distinguish case treats two names as
// the same name, fold returns the same form for both names. On Windows, fold keeps the encodings of
// accents, because Windows distinguishes them.
func fold(name string) string {
	name = strings.ToLower(strings.ToUpper(name))
	if runtime.GOOS == "windows" {
		return name
	}
	return norm.NFC.String(name)
}

// swapCase returns a letter in its other case.
func swapCase(r rune) rune {
	if upper := unicode.ToUpper(r); upper != r {
		return upper
	}
	return unicode.ToLower(r)
}
