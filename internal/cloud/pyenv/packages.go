package pyenv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Packages describes the packages of the prepared environment. The zero value means the short
// list: IPython, numpy, pandas, matplotlib, pillow, requests, and the kernel of Bash.
type Packages struct {
	// Full adds the packages of the service's template code-interpreter-v1, in the template's
	// versions, and kernels of other languages.
	Full bool `json:"full,omitempty"`
	// File is the path of a requirements file with additional packages. "" means no additional
	// packages.
	File string `json:"file,omitempty"`
}

// chosen is the name of the file in the cache that contains the last choice of packages.
const chosen = "chosen.json"

// choice is the content of the file chosen.
type choice struct {
	Packages

	// Digest is the digest of File's content at the time of the choice. A later change of File
	// does not affect sandboxes until the next Ensure.
	Digest string `json:"digest,omitempty"`
}

// readChoice returns the last choice. It returns the zero value if no choice was made yet, or if
// the cache is not readable.
func readChoice() (choice, error) {
	var c choice
	cache, err := cacheDirectory()
	if err != nil {
		return c, nil //nolint:nilerr // without a cache nothing was chosen
	}
	name := filepath.Join(cache, chosen)
	content, err := os.ReadFile(name)
	if err != nil {
		return c, nil //nolint:nilerr // making the environment reports the problem with the cache
	}
	if err := json.Unmarshal(content, &c); err != nil {
		return c, fmt.Errorf("python: read which packages were chosen from %s: %w; remove it, and run `e2bctl local setup`", name, err)
	}
	return c, nil
}

// newChoice returns the choice of p. It reads the user's own file.
func newChoice(p Packages) (choice, error) {
	c := choice{Packages: p}
	if p.File == "" {
		return c, nil
	}
	content, err := os.ReadFile(p.File)
	if err == nil {
		c.File, err = filepath.Abs(p.File)
	}
	if err != nil {
		return c, fmt.Errorf("python: read the list of packages: %w", err)
	}
	if len(bytes.TrimSpace(content)) == 0 {
		return c, fmt.Errorf("python: %s has no packages", p.File)
	}
	c.Digest = digest(string(content))
	return c, nil
}

// write writes the choice to the cache, for [Find] and the next [Ensure].
func (c choice) write() error {
	if before, err := readChoice(); err == nil && before == c {
		return nil
	}
	cache, err := cacheDirectory()
	if err != nil {
		return err
	}
	content, err := json.Marshal(c)
	if err != nil {
		return err
	}
	name := filepath.Join(cache, chosen)
	if c == (choice{}) {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("python: record which packages were chosen: %w", err)
		}
		return nil
	}
	// The file is renamed to its place, so that no process reads an incomplete file.
	err = os.WriteFile(name+".new", content, 0o644)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return fmt.Errorf("python: record which packages were chosen: %w", err)
	}
	return nil
}

// remedy returns the command that prepares the choice.
func (c choice) remedy() string {
	command := "run `e2bctl local setup"
	if c.Full {
		command += " --full"
	}
	if c.File != "" {
		command += " --packages " + c.File
	}
	return command + "`"
}

// list returns the pinned list for the choice.
func (c choice) list() list {
	if c.Full {
		return full
	}
	return short
}

// digest returns a hash of the packages. The names of environments with these packages begin with
// this hash.
func (c choice) digest() string {
	text := string(c.list()) + userPath
	if c.Digest != "" {
		text += c.Digest
	}
	return digest(text)
}
