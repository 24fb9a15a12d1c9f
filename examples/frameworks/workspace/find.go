package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/e2bctl/e2bctl/sandbox"
)

// maxFound is the number of files or lines after which a search ends, and maxRecord the length of
// one of them.
const (
	maxFound  = 500
	maxRecord = 8 << 10
)

var errEnough = errors.New("enough was found")

// Match is a line that contains the pattern of a search.
type Match struct {
	Path string
	// Line counts from 1.
	Line int
	// Text is the beginning of the line.
	Text string
}

// Find returns the paths of up to 500 files below a directory that match a pattern. * is any part
// of a name, and ** any number of directories. A pattern without a slash is for names at any depth.
func (w *Workspace) Find(ctx context.Context, dir, pattern string) ([]string, error) {
	root, err := w.Path(dir)
	if err != nil {
		return nil, err
	}
	if !doublestar.ValidatePattern(pattern) {
		return nil, fmt.Errorf("%q is no pattern: use *, **, ? and [abc]", pattern)
	}
	var found []string
	err = w.search(ctx, "find "+sandbox.Quote(root)+" -type f -print0", 0, func(record string) error {
		if matches(root, record, pattern) {
			found = append(found, record)
		}
		return enough(len(found))
	})
	return found, err
}

// Grep returns up to 500 lines below a directory that contain a text. A pattern limits the files
// as in Find; an empty one does not.
func (w *Workspace) Grep(ctx context.Context, dir, text, pattern string) ([]Match, error) {
	root, err := w.Path(dir)
	switch {
	case err != nil:
		return nil, err
	case text == "", strings.Contains(text, "\n"):
		return nil, errors.New("search for text of one line")
	case !doublestar.ValidatePattern(pattern):
		return nil, fmt.Errorf("%q is no pattern: use *, **, ? and [abc]", pattern)
	}
	var found []Match
	// cut bounds each line, and grep ends with status 1 if there is none.
	command := "grep -rnIF --null -e " + sandbox.Quote(text) + " -- " + sandbox.Quote(root) + " | cut -b -4000; exit $((PIPESTATUS[0] == 1 ? 0 : PIPESTATUS[0]))"
	err = w.search(ctx, command, '\n', func(record string) error {
		name, rest, _ := strings.Cut(record, "\x00")
		number, line, _ := strings.Cut(rest, ":")
		n, err := strconv.Atoi(number)
		if err == nil && matches(root, name, pattern) {
			found = append(found, Match{Path: name, Line: n, Text: strings.ToValidUTF8(line, "\uFFFD")})
		}
		return enough(len(found))
	})
	return found, err
}

// search calls found with each record that a command prints, until found returns errEnough. A file
// that cannot be read does not void the records of other files.
func (w *Workspace) search(ctx context.Context, command string, end byte, found func(record string) error) error {
	out := &records{end: end, each: found}
	result, err := w.Command(ctx, command, out, nil)
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err != nil:
		return err
	case result.ExitCode != 0 && out.n == 0:
		text, _ := Cut(result.Stderr, 2000)
		return fmt.Errorf("the search ended with %s: %s", result.Status, text)
	}
	return nil
}

// matches reports whether a file is below root and matches a pattern; the empty one matches all.
// The names come from the sandbox: with a newline in it, a name seems to begin elsewhere.
func matches(root, file, pattern string) bool {
	relative, below := strings.CutPrefix(file, strings.TrimSuffix(root, "/")+"/")
	if file == root {
		relative, below = path.Base(root), true
	}
	if !strings.Contains(pattern, "/") {
		relative = path.Base(relative)
	}
	return below && (pattern == "" || doublestar.MatchUnvalidated(pattern, relative))
}

func enough(n int) error {
	if n == maxFound {
		return errEnough
	}
	return nil
}

// records is a writer that splits its input.
type records struct {
	end  byte
	each func(record string) error
	rest []byte
	// n is the number of records.
	n int
}

func (r *records) Write(data []byte) (int, error) {
	r.rest = append(r.rest, data...)
	for {
		record, rest, found := bytes.Cut(r.rest, []byte{r.end})
		if len(record) > maxRecord {
			return 0, fmt.Errorf("a line of the search is longer than %d bytes", maxRecord)
		}
		if !found {
			return len(data), nil
		}
		r.rest = rest
		r.n++
		if err := r.each(string(record)); err != nil {
			return 0, err
		}
	}
}
