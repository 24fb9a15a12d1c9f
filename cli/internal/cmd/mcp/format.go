package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// server contains the command, the arguments and the environment variables with which a client
// starts a server.
type server struct {
	Command   string
	Args      []string
	Variables []string // the names of the environment variables to pass on
}

// format is the form of a client's configuration. Its errors name the line and the column.
type format interface {
	// entry returns the text that adds a server to an empty file.
	entry(name string, s server) (string, error)

	// edit adds the server called name to text, or replaces it, and returns the edited text. existed
	// reports whether text had a server of that name. All other bytes are unchanged. The text must not
	// begin with a byte order mark.
	edit(text []byte, name string, s server) (edited []byte, existed bool, err error)

	// values returns the servers of a text by their names, and all other values of the text.
	values(text []byte) (servers, rest map[string]any, err error)
}

// byteOrderMark is a character with which some editors on Windows begin a file.
var byteOrderMark = []byte("\uFEFF")

// change is a change of one server in a text.
type change struct {
	text    []byte   // the text after the change
	existed bool     // there was a server of that name
	secrets []string // the secrets in the text before the change
}

// diffText returns the change as a unified diff for a terminal. Stars replace the secrets of the
// earlier text. A secret that is also the command or an argument of s is shown.
func (c change) diffText(path string, before []byte, s server) string {
	_, text, _ := bytes.Cut(diff.Diff(path, before, path, c.text), []byte("\n")) // the first line is that of the program diff
	return cmdutil.Printable(string(hide(text, c.secrets, append([]string{s.Command}, s.Args...))))
}

// changed returns the change that makes s the server called name. If the text already has s under
// that name, the change leaves the text as it is.
func changed(f format, text []byte, name string, s server) (change, error) {
	body, marked := bytes.CutPrefix(text, byteOrderMark)
	edited, existed, err := f.edit(body, name, s)
	if err != nil {
		return change{}, err
	}
	made := change{text: text, existed: existed}
	if bytes.Equal(edited, body) {
		return made, nil
	}
	if made.secrets, err = checked(f, body, edited, name); err != nil {
		return change{}, err
	}
	made.text = edited
	if marked {
		made.text = append(bytes.Clone(byteOrderMark), edited...)
	}
	return made, nil
}

// checked returns the secrets in the text before. If the texts before and after differ in more than
// the server called name, checked returns an error.
func checked(f format, before, after []byte, name string) (secrets []string, err error) {
	old, oldRest, err := f.values(before)
	if err != nil {
		return nil, err
	}
	made, madeRest, err := f.values(after)
	if err != nil {
		return nil, fmt.Errorf("the file with the server in it could not be read: %w; nothing was written, add the output of --print by hand", err)
	}
	secrets = append(secretsIn(old, false), secretsIn(oldRest, false)...)
	delete(old, name)
	delete(made, name)
	if !sameValues(old, made) || !sameValues(oldRest, madeRest) {
		return nil, errors.New("more than the server would change; nothing was written, add the output of --print by hand")
	}
	return secrets, nil
}

func sameValues(a, b map[string]any) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}
