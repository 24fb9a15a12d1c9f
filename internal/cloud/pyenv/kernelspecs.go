package pyenv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// kernelspecs returns the directory of kernels in an environment. Sandboxes look for Jupyter
// kernels in this directory.
func kernelspecs(directory string) string {
	return filepath.Join(directory, "share", "jupyter", "kernels")
}

type kernelspec struct {
	Argv        []string          `json:"argv"`
	DisplayName string            `json:"display_name"`
	Language    string            `json:"language"`
	Env         map[string]string `json:"env,omitempty"`
}

// WriteKernelspecs writes the kernelspecs of the environment's Jupyter kernels to directory, where
// sandboxes look for kernels. It writes a kernelspec for the kernel of Bash. If full is set, it
// also writes the kernelspecs for the kernels of the full list. The packages' own installers are
// not used, because they would write to the user's home, and sandboxes have no access to this home.
func WriteKernelspecs(directory string, full bool) error {
	const connection = "{connection_file}"
	specs := map[string]kernelspec{"bash": {
		Argv:        []string{venvPython(directory), "-m", "bash_kernel", "-f", connection},
		DisplayName: "Bash", Language: "bash", Env: map[string]string{"PS1": "$"},
	}}
	if full { // Deno runs JavaScript and TypeScript
		specs["deno"] = kernelspec{
			Argv:        []string{filepath.Join(filepath.Dir(venvPython(directory)), "deno"), "jupyter", "--kernel", "--conn", connection},
			DisplayName: "Deno", Language: "typescript",
		}
	}
	for name, spec := range specs {
		content, err := json.MarshalIndent(spec, "", " ")
		if err != nil {
			return err
		}
		folder := filepath.Join(kernelspecs(directory), name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("python: make the directory of the kernel %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, "kernel.json"), content, 0o644); err != nil {
			return fmt.Errorf("python: describe the kernel %s: %w", name, err)
		}
	}
	return nil
}

// copied lists the names under which the kernels of R and Java are installed.
var copied = []string{"ir", "r", "java"}

// copyKernelspecs copies the user's kernelspecs of R and Java to the environment, and returns the
// names of these kernels. Copies are necessary because sandboxes have access to kernelspecs in /usr
// and in the environment, but not in the user's home or in the directories of JUPYTER_PATH.
func copyKernelspecs(directory string) ([]string, error) {
	var names []string
	for _, root := range userKernelspecs() {
		for _, name := range copied {
			from, to := filepath.Join(root, name), filepath.Join(kernelspecs(directory), name)
			if _, err := os.Stat(filepath.Join(from, "kernel.json")); err != nil || slices.Contains(names, name) {
				continue
			}
			err := os.RemoveAll(to)
			if err == nil {
				err = copyKernelspec(from, to)
			}
			if err != nil {
				return names, fmt.Errorf("python: copy the kernel in %s: %w", from, err)
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// userKernelspecs returns the directories of the user's kernelspecs to which sandboxes have no
// access.
func userKernelspecs() []string {
	data := append(filepath.SplitList(os.Getenv("JUPYTER_PATH")), os.Getenv("JUPYTER_DATA_DIR"))
	if home, err := os.UserHomeDir(); err == nil {
		data = append(data, filepath.Join(home, ".local", "share", "jupyter"))
	}
	var directories []string
	for _, path := range data {
		if filepath.IsAbs(path) {
			directories = append(directories, filepath.Join(path, "kernels"))
		}
	}
	return directories
}

// copyKernelspec copies the regular files in a kernel's directory. The kernel.json of some kernels,
// such as Java's, names the directory. The copy of such a kernel.json names the new directory.
func copyKernelspec(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case entry.IsDir():
			return os.MkdirAll(target, 0o755)
		case !entry.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if name == "kernel.json" {
			if !json.Valid(content) {
				return errors.New("kernel.json is not JSON")
			}
			content = bytes.ReplaceAll(content, []byte(from+"/"), []byte(to+"/"))
		}
		return os.WriteFile(target, content, 0o644)
	})
}
