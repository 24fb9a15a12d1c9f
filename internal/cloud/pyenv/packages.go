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

// Packages are the packages of the prepared environment. The zero value is the short
// list: IPython, numpy, pandas, matplotlib, pillow and requests, and the kernel of Bash.
type Packages struct {
	// Full asks for the packages of the service's template code-interpreter-v1, at its
	// versions, and for kernels of other languages.
	Full bool `json:"full,omitempty"`
	// File is a requirements file whose packages are installed in addition, or "".
	File string `json:"file,omitempty"`
}

// chosen is the file in the cache with the choice of packages that was prepared last.
const chosen = "chosen.json"

// choice is the content of that file.
type choice struct {
	Packages

	// Digest is the digest of File's content when it was chosen. A later change of the
	// file does not change the packages of sandboxes until Ensure is called again.
	Digest string `json:"digest,omitempty"`
}

// readChoice returns the last choice. It returns the zero value if there is none, or no
// readable cache.
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

// newChoice reads the file of the user's own list.
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

// write records the choice in the cache for [Find] and the next [Ensure].
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
	// It is renamed into place, so that nobody reads an incomplete file.
	err = os.WriteFile(name+".new", content, 0o644)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return fmt.Errorf("python: record which packages were chosen: %w", err)
	}
	return nil
}

// remedy returns the advice for preparing the choice.
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

// list returns the pinned list of the environment.
func (c choice) list() list {
	if c.Full {
		return full
	}
	return short
}

// digest returns the beginning of the names of environments with these packages.
func (c choice) digest() string {
	text := string(c.list()) + userPath
	if c.Digest != "" {
		text += c.Digest
	}
	return digest(text)
}
