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

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

//go:embed python/start.py python/_e2bctl_kernel/*.py
var driver embed.FS

// WriteDriver writes the driver's files into dir, which it makes, and gives the
// path of the script to run. Files that are there are replaced.
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

// message is a line of the driver. What the process says is foreign: user code
// has the same socket.
type message struct {
	Type    string          `json:"type"`
	Content json.RawMessage `json:"content"`
	// ID is the request that a reply is for.
	ID uint64 `json:"id"`
	// Seq is the number of a sync or an input_request.
	Seq uint64 `json:"seq"`
	// Buffers are the binary parts, which only Jupyter's kernels have.
	Buffers [][]byte `json:"-"`
}

var errLine = errors.New("kernel: malformed line of the driver")

func parseLine(line []byte) (*message, error) {
	if m := parseStream(line); m != nil {
		return m, nil
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", errLine, err)
	}
	if m.Type == "" || len(m.Content) == 0 || m.Content[0] != '{' {
		return nil, fmt.Errorf("%w: type %.40q with content that is not an object", errLine, m.Type)
	}
	return &m, nil
}

// parseStream reads a line of output as the driver writes it, which is nearly
// all lines when there are many; nil is any other line.
func parseStream(line []byte) *message {
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
	return &message{Type: "stream", Content: bytes.Clone(content)}
}

// command is a line to the driver.
type command struct {
	Type    string            `json:"type"`
	Content json.RawMessage   `json:"content,omitempty"`
	ID      uint64            `json:"id,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Seq     uint64            `json:"seq,omitempty"`
	Value   string            `json:"value"`
	EOF     bool              `json:"eof,omitempty"`
	Buffers [][]byte          `json:"-"` // for Jupyter's kernels
}

// Info is what the driver says of itself when it is ready.
type Info struct {
	// Python is the version of the interpreter.
	Python string `json:"python"`
	// Engine is "ipython" or "python", and Version its version.
	Engine  string `json:"engine"`
	Version string `json:"version"`
	// Note says what is missing and what to install; empty with IPython.
	Note string `json:"note"`
	// KernelInfo is a Jupyter kernel's own kernel_info_reply.
	KernelInfo json.RawMessage `json:"kernel_info,omitempty"`
}
