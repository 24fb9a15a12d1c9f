//go:build linux

package zmq

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// Spec is an installed Jupyter kernel, as its kernel.json describes it.
type Spec struct {
	// Name is the name of the kernel for clients. Dir is the directory of the kernelspec.
	Name string `json:"-"`
	Dir  string `json:"-"`

	Argv          []string          `json:"argv"`
	DisplayName   string            `json:"display_name"`
	Language      string            `json:"language"`
	InterruptMode string            `json:"interrupt_mode"`
	Env           map[string]string `json:"env"`
	Metadata      json.RawMessage   `json:"metadata"`
}

// InterruptByMessage is the InterruptMode of kernels that are interrupted by a message. The default
// mode is "signal".
const InterruptByMessage = "message"

// Bounds for reading kernelspecs. They are needed because sandboxed code can write kernelspecs.
const (
	maxKernelspec  = 1 << 20
	maxKernelspecs = 256
)

// kernelspecName matches the kernel names that Jupyter allows.
var kernelspecName = lazyregexp.New(`^[a-zA-Z0-9._-]{1,64}$`)

// ErrNotInstalled means that no kernel with the requested name is installed.
var ErrNotInstalled = errors.New("zmq: not installed")

// Specs lists the directories of Jupyter kernels. If several directories have a kernel of the same
// name, the kernel in the first of these directories is used. The directories are read at every use,
// so that newly installed kernels are found.
type Specs []string

// Dirs returns the standard directories of kernels: those in the variable JUPYTER_PATH, those in the
// home directories (the variable HOME and homes), those in prefix, and the machine's. prefix is the
// prefix of the Python environment.
func Dirs(environ []string, prefix string, homes ...string) Specs {
	var data []string
	env := link.Variables(environ)
	data = append(data, filepath.SplitList(env["JUPYTER_PATH"])...)
	for _, home := range append([]string{env["HOME"]}, homes...) {
		if home != "" {
			data = append(data, filepath.Join(home, ".local/share/jupyter"))
		}
	}
	data = append(data, filepath.Join(prefix, "share/jupyter"), "/usr/local/share/jupyter", "/usr/share/jupyter")
	var dirs Specs
	for _, dir := range data {
		dir = filepath.Join(dir, "kernels")
		if filepath.IsAbs(dir) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Find returns the kernel with the given name, regardless of upper and lower case. If there is no
// such kernel, the error is [ErrNotInstalled]. If the kernel that was found is invalid, the error
// describes the reason.
func (s Specs) Find(name string) (*Spec, error) {
	name = strings.ToLower(name)
	if kernelspecName().MatchString(name) && name != "." && name != ".." {
		for _, dir := range s {
			spec, err := readKernelspec(dir, name)
			if !errors.Is(err, os.ErrNotExist) {
				return spec, err
			}
		}
	}
	return nil, fmt.Errorf("%w: %.64q", ErrNotInstalled, name)
}

// All returns the installed kernels that are valid, sorted by name.
func (s Specs) All() []*Spec {
	found := map[string]*Spec{}
	for _, dir := range s {
		for _, name := range kernelspecNames(dir) {
			name = strings.ToLower(name)
			if _, shadowed := found[name]; shadowed || len(found) >= maxKernelspecs {
				continue
			}
			if spec, err := readKernelspec(dir, name); err == nil {
				found[name] = spec
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *Spec) int { return strings.Compare(a.Name, b.Name) })
}

func kernelspecNames(dir string) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxKernelspecs)
	return slices.DeleteFunc(names, func(name string) bool { return !kernelspecName().MatchString(name) })
}

// readKernelspec reads dir/name/kernel.json. name is in lower case, but the directory's own name
// may contain upper case.
func readKernelspec(dir, name string) (*Spec, error) {
	for _, entry := range kernelspecNames(dir) {
		if strings.EqualFold(entry, name) {
			return parseKernelspec(name, filepath.Join(dir, entry))
		}
	}
	return nil, os.ErrNotExist
}

func parseKernelspec(name, dir string) (*Spec, error) {
	path := filepath.Join(dir, "kernel.json")
	// Opening must not block if the path is not a regular file but, for example, a pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("zmq: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("zmq: %s is not a file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKernelspec))
	if err != nil {
		return nil, fmt.Errorf("zmq: %w", err)
	}
	spec := &Spec{Name: name, Dir: dir}
	if err := json.Unmarshal(data, spec); err != nil {
		return nil, fmt.Errorf("zmq: %s: %w", path, err)
	}
	if len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return nil, fmt.Errorf("zmq: %s: argv is empty", path)
	}
	if spec.InterruptMode == "" {
		spec.InterruptMode = "signal"
	}
	if len(spec.Metadata) == 0 {
		spec.Metadata = json.RawMessage("{}")
	}
	return spec, nil
}

// reference matches references to variables in the env of kernel.json.
var reference = lazyregexp.New(`\$\{\w+\}`)

// environ returns the environment of the kernel's process.
func (s *Spec) environ(base []string) []string {
	before := link.Variables(base)
	env := maps.Clone(before)
	env["NO_COLOR"] = "1" // output is not for a terminal
	for name, value := range s.Env {
		env[name] = reference().ReplaceAllStringFunc(value, func(reference string) string {
			if value, ok := before[reference[2:len(reference)-1]]; ok {
				return value
			}
			return reference
		})
	}
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// command returns the argv of the kernel. The program is searched in the PATH of environ.
func (s *Spec) command(environ []string, connectionFile string) (argv []string, err error) {
	replace := strings.NewReplacer("{connection_file}", connectionFile, "{resource_dir}", s.Dir)
	for _, arg := range s.Argv {
		argv = append(argv, replace.Replace(arg))
	}
	if filepath.IsAbs(argv[0]) {
		return argv, nil
	}
	for _, dir := range filepath.SplitList(link.Variables(environ)["PATH"]) {
		if path, err := exec.LookPath(filepath.Join(dir, argv[0])); err == nil && filepath.IsAbs(path) {
			argv[0] = path
			return argv, nil
		}
	}
	return nil, fmt.Errorf("%s/kernel.json: the program %.200q is not in PATH", s.Dir, argv[0])
}
