//go:build linux

package interpreter

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/zmq"
)

// normalLanguage is the name under which a language has its context.
func normalLanguage(language string) string {
	switch name := strings.ToLower(strings.TrimSpace(language)); name {
	case "":
		return "python"
	case "js":
		return "javascript"
	case "ts":
		return "typescript"
	default:
		return name
	}
}

// kernelspecs are the Jupyter kernels that the sandbox has now.
func (s *Server) kernelspecs() (zmq.Specs, error) {
	environ, err := s.options.Environ()
	if err != nil {
		return nil, fmt.Errorf("interpreter: %w", err)
	}
	prefix := filepath.Dir(filepath.Dir(s.options.Python[0]))
	return zmq.Dirs(environ, prefix, s.options.Dir), nil
}

// errNoKernel is that no kernel of this name is installed, in Jupyter's words.
type errNoKernel string

func (name errNoKernel) Error() string {
	quoted, _ := json.Marshal(fmt.Sprintf("The '%.64s' kernel is not available. Please pick another suitable kernel instead, or install that kernel.", string(name)))
	short, _ := json.Marshal(fmt.Sprintf("%.64s not found", string(name)))
	return fmt.Sprintf(`{"message": %s, "short_message": %s}`, quoted, short) // spaces included
}

// kernelFor gives the kernel that runs a language: nil is the driver's Python,
// all others are those that are installed. JavaScript and TypeScript run in the
// kernel "javascript", or else in Deno's. The error may be errNoKernel.
func (s *Server) kernelFor(language string) (*zmq.Spec, error) {
	names := []string{language}
	switch language {
	case "", "python", "python3":
		return nil, nil //nolint:nilnil // it is what there is for Python
	case "javascript", "typescript":
		names = []string{"javascript", "deno"}
	}
	specs, err := s.kernelspecs()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		spec, err := specs.Find(name)
		if !errors.Is(err, zmq.ErrNotInstalled) {
			return spec, err
		}
	}
	return nil, errNoKernel(names[0])
}

func (k *runningKernel) kernelName() string {
	if k.spec != nil {
		return k.spec.Name
	}
	return "python3"
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
