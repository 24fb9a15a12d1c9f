//go:build linux

package pyenv

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// emptyWheel returns a package of empty modules.
func emptyWheel(t *testing.T, name string, files ...string) []byte {
	t.Helper()
	var buffer bytes.Buffer
	archive := zip.NewWriter(&buffer)
	info := name + "-1.0.dist-info/"
	texts := map[string]string{
		info + "METADATA": "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n",
		info + "WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "RECORD":   "",
	}
	for _, file := range files {
		texts[file] = ""
	}
	for file, text := range texts {
		w, err := archive.Create(file)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// index is a package index that writes down which files it was asked for. It keeps none of them from
// being asked for again: it says nothing about caching.
type index struct {
	list   list
	wheels map[string][]byte

	mu        sync.Mutex
	asked     []string
	interrupt string // the file whose request calls stop, or ""
	stop      func() // interrupts whoever asks
}

func newIndex(t *testing.T) *index {
	t.Helper()
	x := &index{wheels: make(map[string][]byte)}
	files := map[string][]string{"ipython": {"IPython/__init__.py"}, "matplotlib": {"matplotlib/__init__.py", "matplotlib/font_manager.py"}}
	for i := range 2 * batch {
		files[fmt.Sprintf("p%02d", i)] = []string{fmt.Sprintf("p%02d.py", i)}
	}
	lines := []string{"# Python 3.9 to 3.14; made for a test.\n"}
	for name, modules := range files {
		content := emptyWheel(t, name, modules...)
		x.wheels[name+"-1.0-py3-none-any.whl"] = content
		lines = append(lines, fmt.Sprintf("%s==1.0 \\\n    --hash=sha256:%x\n", name, sha256.Sum256(content)))
	}
	slices.Sort(lines)
	x.list = list(strings.Join(lines, ""))
	return x
}

func (x *index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	content, found := x.wheels[name]
	if !found {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="/files/%[1]s-1.0-py3-none-any.whl">%[1]s-1.0-py3-none-any.whl</a>`, name)
		return
	}
	x.mu.Lock()
	stopped := name == x.interrupt
	if stopped {
		x.interrupt = ""
		x.stop()
	} else {
		x.asked = append(x.asked, name)
	}
	x.mu.Unlock()
	if stopped {
		<-r.Context().Done() // pip has gone
		return
	}
	_, _ = w.Write(content)
}

// TestInterruptedSetup interrupts a setup while it fetches a package, and wants the next one to fetch
// only what is missing, and to say so in lines.
func TestInterruptedSetup(t *testing.T) {
	base, err := exec.LookPath("python3")
	if err == nil {
		err = exec.CommandContext(t.Context(), base, "-c", "import ensurepip").Run()
	}
	if err != nil {
		skip(t, "a python3 that can make environments is needed: %v", err)
	}
	for _, sent := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(sent.String(), func(t *testing.T) {
			t.Parallel()
			x := newIndex(t)
			server := httptest.NewServer(x)
			defer server.Close()
			cache := t.TempDir()
			setup := func() (*exec.Cmd, *bytes.Buffer) {
				cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
				cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PIP_") }),
					listVariable+"="+string(x.list), "XDG_CACHE_HOME="+cache, "PIP_INDEX_URL="+server.URL+"/simple", Variable+"=")
				var said bytes.Buffer
				cmd.Stderr = &said
				return cmd, &said
			}
			interrupted, said := setup()
			x.interrupt = "p09-1.0-py3-none-any.whl" // in the second batch: before it are ipython and matplotlib
			x.stop = func() { _ = interrupted.Process.Signal(sent) }
			if err := interrupted.Run(); err == nil || !strings.Contains(said.String(), "fetched 8 of 18 packages\n") {
				t.Fatalf("the interrupted setup: %v, %s", err, said)
			}
			first := slices.Clone(x.asked)
			x.asked = nil
			again, said := setup()
			if err := again.Run(); err != nil {
				t.Fatalf("the next setup: %v, %s", err, said)
			}
			for _, name := range first[:batch] {
				if slices.Contains(x.asked, name) {
					t.Errorf("%s was fetched again", name)
				}
			}
			for _, line := range []string{"8 of them were fetched before\n", "fetched 16 of 18 packages\n", "fetched 18 of 18 packages\n"} {
				if !strings.Contains(said.String(), line) {
					t.Errorf("no %q in %s", line, said)
				}
			}
			if left := environments(t, cache); len(left) != 1 {
				t.Errorf("got the environments %q, want one", left)
			}
		})
	}
}
