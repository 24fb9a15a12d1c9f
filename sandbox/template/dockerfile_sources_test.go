package template

import (
	"fmt"
	"strings"
	"testing"
)

// copies are the steps that a Dockerfile becomes with the files of a directory, without
// those that are no COPY: source, target and the names in the archive.
func copies(t *testing.T, dir, text string) (string, error) {
	t.Helper()
	d := FromDockerfile(strings.NewReader("FROM x\n"+text), nil)
	if d.err != nil {
		return "", d.err
	}
	made, err := prepare(t.Context(), d, &BuildParams{Dir: dir})
	if err != nil {
		return "", err
	}
	t.Cleanup(made.close)
	var all []string
	for _, s := range made.steps {
		for _, u := range made.uploads {
			if s.FilesHash == u.FilesHash {
				all = append(all, fmt.Sprint(s.Args[0], " ", s.Args[1], " ", namesOf(u.files)))
			}
		}
	}
	return strings.Join(all, "\n"), nil
}

// A pattern without a match is skipped where another source of the same COPY is there.
// Everything else that is not there is an error with the line of the COPY.
func TestCopyWithoutMatch(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"package.json": "p", ".dockerignore": "*.log", "x.log": "l"})
	for text, want := range map[string]string{
		"COPY package.json yarn.lock* ./":  "package.json ./ [package.json]",
		"COPY pnpm* package.json yarn* ./": "package.json ./ [package.json]",
		"COPY *.log package.json ./":       "package.json ./ [package.json]",
		"COPY <<A yarn* /x/\ntext\nA":      "",
	} {
		if got, err := copies(t, dir, text); got != want || err != nil {
			t.Errorf("%s: got %q and error %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"COPY package.json yarn.lock ./", "COPY yarn* ./", "COPY yarn* pnpm* ./", "COPY package.json /a\nCOPY yarn* /b"} {
		line := fmt.Sprintf("Dockerfile: line %d: copy ", 2+strings.Count(text, "\n"))
		if got, err := copies(t, dir, text); err == nil || !strings.HasPrefix(err.Error(), line) {
			t.Errorf("%s: got %q and error %v, want one that begins with %q", text, got, err, line)
		}
	}
}
