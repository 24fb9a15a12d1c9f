//go:build linux

package kernel

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

//go:embed python/start.py python/_e2bctl_kernel/*.py
var driver embed.FS

// WriteDriver writes the driver's files into dir, which it creates, and returns the
// path of the script to run. Existing files are replaced.
func WriteDriver(dir string) (string, error) {
	files, err := fs.Sub(driver, "python")
	if err != nil {
		return "", err
	}
	err = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		if entry.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
	if err != nil {
		return "", fmt.Errorf("kernel: write the driver: %w", err)
	}
	return filepath.Join(dir, "start.py"), nil
}

var errLine = errors.New("kernel: malformed line from the driver")

func parseLine(line []byte) (*link.Message, error) {
	if m := parseStream(line); m != nil {
		return m, nil
	}
	var m link.Message
	if err := json.Unmarshal(line, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", errLine, err)
	}
	if m.Type == "" || len(m.Content) == 0 || m.Content[0] != '{' {
		return nil, fmt.Errorf("%w: type %.40q with content that is not an object", errLine, m.Type)
	}
	return &m, nil
}

// parseStream parses a line of output in the form in which the driver writes it,
// which is nearly all lines when there are many. It returns nil for any other line.
func parseStream(line []byte) *link.Message {
	content, ok := bytes.CutPrefix(line, []byte(`{"type":"stream","content":`))
	if !ok {
		return nil
	}
	if content, ok = bytes.CutSuffix(content, []byte("}\n")); !ok {
		return nil
	}
	if _, _, err := jupyter.ParseStream(content); err != nil || content[0] != '{' {
		return nil
	}
	return &link.Message{Type: "stream", Content: bytes.Clone(content)}
}
