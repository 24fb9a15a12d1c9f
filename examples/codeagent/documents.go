package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/state"
)

// documents contains the files in a directory of this machine that code may read. The files
// stay on this machine; the sandbox receives only documents that code requests by name.
type documents struct {
	root  *os.Root // the directory; no name and no link leads out of it
	names []string
}

const (
	maxDocuments = 1000
	maxDocument  = 1 << 20 // the largest size of a document, in bytes
)

// openDocuments lists the directory once. Files that are not in this list, such as hidden
// files, do not exist for the code.
func openDocuments(dir string) (*documents, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	d := &documents{root: root}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.Type().IsRegular():
			d.names = append(d.names, name)
		}
		if len(d.names) > maxDocuments {
			return fmt.Errorf("%s has more than %d files", dir, maxDocuments)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

// Close closes the directory.
func (d *documents) Close() error { return d.root.Close() }

// state returns the state for the code. Its variable documents lists the names of the documents.
func (d *documents) state() (*state.State, error) {
	st := state.New()
	return st, st.Set("documents", d.names)
}

func (d *documents) tool() agent.Tool {
	type request struct {
		Name string `py:"name" doc:"one of the variable documents"`
	}
	return agent.MustTool("read_document", "Gives the text of a document.", func(_ context.Context, r request) (string, error) {
		return d.read(r.Name)
	}, agent.WithToolLimits(agent.ToolLimits{MaxConcurrency: 4}))
}

// read returns a document. Its errors are written for the model.
func (d *documents) read(name string) (string, error) {
	if !slices.Contains(d.names, name) {
		return "", fmt.Errorf("there is no document %.100q: the variable documents lists them", name)
	}
	file, err := d.root.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxDocument+1))
	switch {
	case err != nil:
		return "", err
	case len(content) > maxDocument:
		return "", fmt.Errorf("%q has more than %d bytes", name, maxDocument)
	case !utf8.Valid(content):
		return "", fmt.Errorf("%q is not text", name)
	}
	return string(content), nil
}
