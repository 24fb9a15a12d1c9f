//go:build linux

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv/gvisortest"
	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv/wasmtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// The rows start this program again, as bench; in a test that is the test
// binary.
func TestMain(m *testing.M) {
	if flags := os.Args[1:]; len(flags) > 0 && (flags[0] == "-serve" || flags[0] == "-get") {
		main()
		return
	}
	goleak.VerifyTestMain(dockertest.Ending{M: m})
}

// TestUnusedMethodsAreNotLinked checks that the command calls no method by a name that the linker
// does not know. With one such call, as text/template has it, the linker keeps all methods of the
// program, and the command is 5 MB larger.
func TestUnusedMethodsAreNotLinked(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(dockertest.Program(t))
	must.Do(t, err)
	if !bytes.Contains(program, []byte("reflect.Value.MethodByName\x00")) {
		t.Fatal("the program has no names of functions")
	}
	if unused := "reflect.(*Value).MethodByName\x00"; bytes.Contains(program, []byte(unused)) {
		t.Errorf("the program contains %q: go build -ldflags=-dumpdep prints the caller with <ReflectMethod>", unused)
	}
}

// Every row can be measured, and the table is written to the file.
func TestRows(t *testing.T) {
	cloud := sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	command := dockertest.Program(t)
	t.Setenv("HTTPS_PROXY", "")
	readme := filepath.Join(t.TempDir(), "README.md")
	must.Do(t, os.WriteFile(readme, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600))
	var printed strings.Builder
	sizes := sizes{scale: 0.02, pause: time.Millisecond, bulk: 1 << 20, crowd: 4, storm: 20, prints: 1000, errors: 3, records: 250}
	p := plan{sizes: sizes, command: command, readme: readme, history: filepath.Join(t.TempDir(), "history"), commit: "this"}
	if err := p.run(t.Context(), &printed); err != nil {
		t.Fatalf("%v\n%s", err, printed.String())
	}
	written, err := os.ReadFile(readme)
	if want := "before\n" + begin + printed.String() + end + "after\n"; err != nil || string(written) != want {
		t.Errorf("the file has %q, %v, want %q and no error", written, err, want)
	}
	records, err := readHistory(p.history)
	must.Do(t, err)
	if lines := strings.Count(printed.String(), "\n| ") - 2; len(records) != lines || records[0].Commit != "this" {
		t.Errorf("%d results of %q are kept, want %d of this", len(records), records[0].Commit, lines)
	}
	b := &bench{sizes: sizes, command: command}
	if cloud.Isolation() == local.Full {
		b.images = "here"
	}
	for _, row := range b.rows() {
		if !strings.Contains(printed.String(), "| "+row.name+" | ") {
			t.Errorf("no row %q in\n%s", row.name, printed.String())
		}
	}
	if strings.Contains(strings.ReplaceAll(printed.String(), " 0 failed", ""), " failed") {
		t.Errorf("something failed:\n%s", printed.String())
	}
	t.Log("\n" + printed.String())
}

// TestProfile checks that a profile is written for the chosen row, and that it is one.
func TestProfile(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	t.Setenv("HTTPS_PROXY", "")
	t.Setenv("PATH", "") // a machine without perf
	dir := t.TempDir()
	p := plan{sizes: sizes{scale: 0.02, bulk: 1 << 20}, only: "list of", profile: dir}
	must.Do(t, p.run(t.Context(), io.Discard))
	files, err := os.ReadDir(dir)
	must.Do(t, err)
	if len(files) != 1 || files[0].Name() != "list-of-0-sandboxes.pprof" {
		t.Fatalf("got %v", files)
	}
	file, err := os.Open(filepath.Join(dir, files[0].Name()))
	must.Do(t, err)
	defer file.Close()
	if _, err := gzip.NewReader(file); err != nil {
		t.Errorf("it is no profile: %v", err)
	}
}

// TestWasmRows does the same with the rows about WebAssembly.
func TestWasmRows(t *testing.T) {
	wasmtest.Need(t)
	var printed strings.Builder
	sizes := sizes{scale: 0.02, pause: time.Millisecond, bulk: 1 << 20}
	p := plan{sizes: sizes, only: wasmRow, engines: []local.Engine{local.EngineWasm}}
	if err := p.run(t.Context(), &printed); err != nil {
		t.Fatalf("%v\n%s", err, printed.String())
	}
	for _, row := range (&bench{sizes: sizes}).wasmRows() {
		if !strings.Contains(printed.String(), "| "+row.name+" | ") {
			t.Errorf("no row %q in\n%s", row.name, printed.String())
		}
	}
	t.Log("\n" + printed.String())
}

// TestGVisorRows does the same with the rows about gVisor.
func TestGVisorRows(t *testing.T) {
	gvisortest.Need(t)
	var printed strings.Builder
	sizes := sizes{scale: 0.02, pause: time.Millisecond, bulk: 1 << 20}
	p := plan{sizes: sizes, command: dockertest.Program(t), only: gvisorRow, engines: []local.Engine{local.EngineGVisor}}
	if err := p.run(t.Context(), &printed); err != nil {
		t.Fatalf("%v\n%s", err, printed.String())
	}
	for _, row := range (&bench{sizes: sizes}).gvisorRows() {
		if !strings.Contains(printed.String(), "| "+row.name+" | ") {
			t.Errorf("no row %q in\n%s", row.name, printed.String())
		}
	}
	t.Log("\n" + printed.String())
}

// A file without the marker lines is left unchanged.
func TestReplaceNothing(t *testing.T) {
	t.Parallel()
	for i, content := range []string{"", "text\n", begin, end, end + begin} {
		path := filepath.Join(t.TempDir(), fmt.Sprint(i))
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
		if err := replace(path, "table\n"); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: got %v, want an error with %q", content, err, path)
		}
		if left, err := os.ReadFile(path); err != nil || string(left) != content {
			t.Errorf("%q became %q, %v", content, left, err)
		}
	}
}
