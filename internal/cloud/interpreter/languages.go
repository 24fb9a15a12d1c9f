//go:build linux

package interpreter

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/zmq"
)

// normalLanguage returns the name under which the context of a language is stored.
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

// kernelspecs returns the Jupyter kernels that are currently installed in the sandbox.
func (s *Server) kernelspecs() (zmq.Specs, error) {
	environ, err := s.options.Environ()
	if err != nil {
		return nil, fmt.Errorf("interpreter: %w", err)
	}
	if s.options.Wasm != nil {
		return zmq.Specs{}, nil
	}
	prefix := "/usr"
	if python := s.python(environ); python != nil {
		prefix = filepath.Dir(filepath.Dir(python[0]))
	}
	return zmq.Dirs(environ, prefix, s.options.Dir), nil
}

// python returns the beginning of the argv of Python. It returns nil if there is no Python at the
// moment.
func (s *Server) python(environ []string) []string {
	if len(s.options.Python) == 0 {
		return nil
	}
	path := child.LookPath(s.options.Python[0], environ)
	if path == "" {
		return nil
	}
	return append([]string{path}, s.options.Python[1:]...)
}

// howToInstall maps the name of a kernel to instructions for adding the kernel to the local cloud. It
// contains each kernel that the service's template always has.
var howToInstall = map[string]string{
	"bash":       " The local cloud has it after `e2bctl local setup` and a new start.",
	"javascript": " The local cloud has it, and TypeScript, after `e2bctl local setup --full` and a new start.",
	"r":          " The local cloud has it if IRkernel is installed on its machine, after `e2bctl local setup --full` and a new start.",
	"java":       " The local cloud has it if IJava is installed on its machine, after `e2bctl local setup --full` and a new start.",
}

// errNoKernel means that no kernel with this name is installed. Its text has Jupyter's wording.
type errNoKernel struct{ name, advice string }

func (e errNoKernel) Error() string {
	quoted, _ := json.Marshal(fmt.Sprintf("The '%.64s' kernel is not available. Please pick another suitable kernel instead, or install that kernel.%s", e.name, e.advice))
	short, _ := json.Marshal(fmt.Sprintf("%.64s not found", e.name))
	return fmt.Sprintf(`{"message": %s, "short_message": %s}`, quoted, short) // Jupyter's text has these spaces
}

// kernelFor returns the kernel for a language. For Python, kernelFor returns nil, because Python uses
// the driver. For any other language, it returns an installed Jupyter kernel. JavaScript and
// TypeScript run in the kernel "javascript" or, without that kernel, in Deno's kernel. A kernel for R
// may also be called "ir", because R's installer uses this name. The error may be an errNoKernel.
func (s *Server) kernelFor(language string) (*zmq.Spec, error) {
	names := []string{language}
	switch language {
	case "", "python", "python3":
		return nil, nil //nolint:nilnil // nil stands for the driver's Python
	}
	if s.options.Wasm != nil {
		return nil, errNoKernel{language, " Sandboxes of the wasm engine run Python only."}
	}
	switch language {
	case "javascript", "typescript":
		names = []string{"javascript", "deno"}
	case "r":
		names = []string{"r", "ir"}
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
	return nil, errNoKernel{names[0], howToInstall[names[0]]}
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
