//go:build linux

package e2e

import (
	"archive/zip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// newWheel makes a wheel of one module.
func newWheel(t *testing.T, name, version, source string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), fmt.Sprintf("%s-%s-py3-none-any.whl", name, version))
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	archive := zip.NewWriter(f)
	info := fmt.Sprintf("%s-%s.dist-info/", name, version)
	var record strings.Builder
	for _, file := range [][2]string{
		{name + "/__init__.py", source},
		{info + "METADATA", fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version)},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "top_level.txt", name + "\n"},
		{info + "RECORD", ""},
	} {
		w, err := archive.Create(file[0])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&record, "%s,,\n", file[0])
		if file[1] == "" {
			file[1] = record.String()
		}
		if _, err := w.Write([]byte(file[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Commands of both users and cells have one Python, and see what any of them
// installs.
func TestOnePython(t *testing.T) {
	t.Parallel()
	sb := create(t, sandboxtest.New(t))
	prefix := strings.Trim(evaluate(t, sb, "import sys; sys.prefix"), "'")
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
				t.Errorf("%s: the prefix of %s is %q, that of the kernel %q", user, program, got, prefix)
			}
		}
	}
	for i, install := range []func(wheel string){
		func(wheel string) { as("user", "pip install --no-index --no-deps "+wheel) },
		func(wheel string) { as("root", "python3 -m pip install --no-index --no-deps "+wheel) },
		func(wheel string) { evaluate(t, sb, "!pip install --no-index --no-deps "+wheel) },
		func(wheel string) { evaluate(t, sb, "%pip install --no-index --no-deps "+wheel) },
	} {
		name := fmt.Sprintf("made%d", i)
		wheel := newWheel(t, name, "1.0", "answer = 42\n")
		content, err := os.ReadFile(wheel)
		if err != nil {
			t.Fatal(err)
		}
		there := "/tmp/" + filepath.Base(wheel)
		if err := sb.Files.Write(t.Context(), there, content, nil); err != nil {
			t.Fatal(err)
		}
		install(there)
		if got := evaluate(t, sb, "import "+name+"; "+name+".answer"); got != "42" {
			t.Errorf("%s in a cell: %s", name, got)
		}
		for _, user := range users {
			if got := as(user, "cd /; python -c 'import "+name+"; print("+name+".answer)'"); got != "42\n" {
				t.Errorf("%s as %s: %s", name, user, got)
			}
		}
	}
}
