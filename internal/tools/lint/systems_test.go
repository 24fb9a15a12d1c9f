package main

import (
	"os"
	"strings"
	"testing"
)

// TestSystems checks that mistakes in files for another system are found, in the package and in its tests, and that
// a module without them passes.
func TestSystems(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.test/m\n\ngo 1.26\n")
	write("m.go", "package m\n\nimport \"fmt\"\n\nfunc Print(n int) { fmt.Printf(\"%d\\n\", n) }\n")
	write("m_test.go", "package m\n\nimport \"testing\"\n\nfunc TestPrint(*testing.T) { Print(1) }\n")
	if err := lintSystems([]string{"windows/amd64", "linux/386"}, []string{"./..."}); err != nil {
		t.Fatalf("no mistake is there, got %v", err)
	}
	write("m_windows.go", "package m\n\nimport \"fmt\"\n\nfunc other() { fmt.Printf(\"%d\\n\", \"text\") }\n")
	write("m_windows_test.go", "package m\n\nvar number int = \"text\"\n")
	if err := lintSystems([]string{"linux/386"}, []string{"./..."}); err != nil {
		t.Errorf("no mistake is in the files for Linux, got %v", err)
	}
	err := lintSystems([]string{"windows/amd64", "linux"}, []string{"./..."})
	if err == nil {
		t.Fatal("mistakes were not found")
	}
	for _, want := range []string{"windows/amd64: ", "m_windows.go:5:", "wrong type", "m_windows_test.go:3:", "linux: this is no system"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}
