package pyenv

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
	"github.com/e2bctl/e2bctl/internal/cloud/shortage"
)

// probe is a program with which an interpreter describes itself. A python3 in PATH may be a
// script that selects one of several interpreters (pyenv, asdf). Only the selected interpreter
// knows its own file.
//
//go:embed probe.py
var probe string

// probeTimeout bounds the time that one interpreter may take to describe itself. A shim on a cold
// disk may take seconds.
const probeTimeout = 20 * time.Second

// oldest is the lowest minor version of Python 3 that the kernel driver supports.
const oldest = 9

// best is the highest minor version of Python 3 for which the lists have the versions of the service's
// template, and whose objects kernels share (_e2bctl_kernel/immortal.py).
const best = 13

// preference orders interpreters by their minor version: the newest is preferred, but versions after
// best come last.
func (i *interpreter) preference() int {
	if minor := i.Numbers[1]; minor <= best {
		return minor
	}
	return -i.Numbers[1]
}

// isPreferredTo compares two interpreters. Of those with the same minor version, the newer is preferred.
func (i *interpreter) isPreferredTo(other *interpreter) bool {
	return cmp.Or(cmp.Compare(i.preference(), other.preference()), cmp.Compare(i.Numbers[2], other.Numbers[2])) > 0
}

// modules contains the main modules of the pinned list. If a module's distribution has another name
// than the module, distribution is that name. probe.py looks for these modules.
var modules = []struct{ name, distribution string }{
	{name: "IPython"}, {name: "numpy"}, {name: "pandas"}, {name: "matplotlib"}, {"PIL", "pillow"}, {name: "requests"},
	{name: "jinja2"}, {name: "nbformat"}, {"nest_asyncio", "nest-asyncio"}, // always installed with ipykernel
}

// interpreter is the description of an interpreter, as printed by probe.py in this interpreter.
type interpreter struct {
	Executable string   // sys.executable
	Real       string   // sys.executable without symbolic links
	Base       string   // the interpreter on which a virtual environment is based
	Prefixes   []string // all installation prefixes, virtual and real
	Numbers    [3]int   `json:"version"`
	Modules    []string // names of the installed modules, out of those in the variable modules
}

func (i *interpreter) version() string {
	return fmt.Sprintf("%d.%d.%d", i.Numbers[0], i.Numbers[1], i.Numbers[2])
}

func (i *interpreter) has(module string) bool { return slices.Contains(i.Modules, module) }

// trees returns the directories that together contain all files of the interpreter. It leaves out
// directories below /usr, and directories inside another one of these directories.
func (i *interpreter) trees() []string {
	paths := append(slices.Clone(i.Prefixes), filepath.Dir(filepath.Dir(i.Real)))
	slices.Sort(paths)
	var trees []string
	for _, path := range paths {
		if below(path, "/usr") || slices.ContainsFunc(trees, func(tree string) bool { return below(path, tree) }) {
			continue
		}
		trees = append(trees, path)
	}
	return trees
}

// below reports whether path is directory or inside it.
func below(path, directory string) bool {
	return path == directory || strings.HasPrefix(path, strings.TrimSuffix(directory, "/")+"/")
}

// usual are the names of a machine's python3.
var usual = []string{"python3", "/usr/bin/python3", "/usr/local/bin/python3"}

// candidates queries the interpreters with the given names. It leaves out interpreters that do not
// work or are too old. It returns an error if ctx ends. It also returns an error if it
// found no interpreter because processes, files or memory were exhausted.
func candidates(ctx context.Context, names ...string) ([]*interpreter, error) {
	var (
		found []*interpreter
		short error
	)
	for _, name := range names {
		candidate, err := ask(ctx, name)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("python: look for an interpreter: %w", context.Cause(ctx))
		}
		if err != nil {
			short = cmp.Or(short, shortage.Of(err))
			continue
		}
		if !slices.ContainsFunc(found, func(other *interpreter) bool { return other.Executable == candidate.Executable }) {
			found = append(found, candidate)
		}
	}
	if len(found) == 0 && short != nil {
		return nil, fmt.Errorf("python: look for an interpreter: %w", short)
	}
	return found, nil
}

// ask runs the interpreter called name, and checks whether a sandbox can use it.
func ask(ctx context.Context, name string) (*interpreter, error) {
	path, err := hostprogram.Find(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	arguments := []string{"-I", "-c", probe}
	for _, module := range append(slices.Clone(modules), struct{ name, distribution string }{name: "ensurepip"}) {
		arguments = append(arguments, module.name)
	}
	command := hostprogram.Command(ctx, "", path, arguments...)
	command.Env = withoutPython(command.Env)
	command.WaitDelay = time.Second
	var errs tail
	command.Stderr = &errs
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w%s", path, err, errs.suffix())
	}
	found := &interpreter{}
	if err := json.Unmarshal(bytes.TrimSpace(output), found); err != nil {
		return nil, fmt.Errorf("%s does not answer as Python does: %w", path, err)
	}
	return found, found.check()
}

// check returns an error if a sandbox cannot run the interpreter. It also returns an error if the
// interpreter needs directories that must be closed to sandboxes.
func (i *interpreter) check() error {
	switch {
	case !filepath.IsAbs(i.Executable):
		return errors.New("the interpreter does not know its own file")
	case i.Numbers[0] != 3 || i.Numbers[1] < oldest:
		return fmt.Errorf("%s is Python %s; 3.%d or newer is needed", i.Executable, i.version(), oldest)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root"
	}
	for _, tree := range i.trees() {
		if tree == "/" || below(home, tree) {
			return fmt.Errorf("%s is installed into %s itself, which sandboxes cannot see; install it into a directory of its own", i.Executable, tree)
		}
	}
	return nil
}
