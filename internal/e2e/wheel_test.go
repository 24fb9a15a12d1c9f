//go:build linux

package e2e

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// wheel returns a wheel with one module, or with none when code is empty.
func wheel(t *testing.T, name, version, code string, requires ...string) []byte {
	t.Helper()
	info := fmt.Sprintf("%s-%s.dist-info/", name, version)
	metadata := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version)
	for _, r := range requires {
		metadata += "Requires-Dist: " + r + "\n"
	}
	files := [][2]string{
		{name + ".py", code},
		{info + "METADATA", metadata},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
	}
	record := info + "RECORD,,\n"
	for _, file := range files {
		record += file[0] + ",,\n"
	}
	var content bytes.Buffer
	archive := zip.NewWriter(&content)
	for _, file := range append(files, [2]string{info + "RECORD", record}) {
		w, err := archive.Create(file[0])
		must.Do(t, err)
		if _, err := w.Write([]byte(file[1])); err != nil {
			t.Fatal(err)
		}
	}
	must.Do(t, archive.Close())
	return content.Bytes()
}

// wheelFile returns the path of a wheel on this machine.
func wheelFile(t *testing.T, name, version, code string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), fmt.Sprintf("%s-%s-py3-none-any.whl", name, version))
	must.Do(t, os.WriteFile(path, wheel(t, name, version, code), 0o600))
	return path
}

// The commands of both users and the cells share one Python, and each sees the
// packages that any of them installs.
func TestOnePython(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	prefix := strings.Trim(sandboxtest.Eval(t, sb, "import sys; sys.prefix"), "'")
	users := []string{"user", "root"}
	as := func(user, command string) string {
		t.Helper()
		result, err := sb.Commands.Run(t.Context(), command, &sandbox.CommandParams{User: user})
		if err != nil {
			t.Fatalf("%s: %s: %v", user, command, err)
		}
		return result.Stdout
	}
	for _, user := range users {
		for _, program := range []string{"python", "python3", "/usr/bin/env python3"} {
			if got := as(user, program+" -c 'import sys; print(sys.prefix)'"); got != prefix+"\n" {
				t.Errorf("%s: the prefix of %s is %q, want that of the kernel, %q", user, program, got, prefix)
			}
		}
	}
	for i, install := range []func(wheel string){
		func(wheel string) { as("user", "pip install --no-index --no-deps "+wheel) },
		func(wheel string) { as("root", "python3 -m pip install --no-index --no-deps "+wheel) },
		func(wheel string) { sandboxtest.Eval(t, sb, "!pip install --no-index --no-deps "+wheel) },
		func(wheel string) { sandboxtest.Eval(t, sb, "%pip install --no-index --no-deps "+wheel) },
		// pip refuses this in other virtual environments.
		func(wheel string) { as("user", "pip install --user --no-index --no-deps "+wheel) },
		func(wheel string) { as("root", "PIP_USER=1 python3 -m pip install --no-index --no-deps "+wheel) },
		func(wheel string) { sandboxtest.Eval(t, sb, "%pip install --no-index --user --no-deps "+wheel) },
	} {
		name := fmt.Sprintf("made%d", i)
		there := "/tmp/" + name + "-1.0-py3-none-any.whl"
		must.Do(t, sb.Files.Write(t.Context(), there, wheel(t, name, "1.0", "answer = 42\n"), nil))
		install(there)
		if got := sandboxtest.Eval(t, sb, "import "+name+"; "+name+".answer"); got != "42" {
			t.Errorf("%s in a cell: %s, want %s", name, got, "42")
		}
		for _, user := range users {
			if got := as(user, "cd /; python -c 'import "+name+"; print("+name+".answer)'"); got != "42\n" {
				t.Errorf("%s as %s: %s, want %s", name, user, got, "42\n")
			}
		}
	}
}
