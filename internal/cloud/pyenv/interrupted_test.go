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
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// emptyWheel returns the content of a wheel with empty modules.
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
		must.Do(t, err)
	}
	must.Do(t, archive.Close())
	return buffer.Bytes()
}

// ending is the end of the file name of each package.
const ending = "-1.0-py3-none-any.whl"

// index is a package index that records the requested files. It sends no headers about caching, so
// pip requests a file again each time.
type index struct {
	list   list
	wheels map[string][]byte

	mu        sync.Mutex
	asked     []string
	interrupt string // package whose request calls stop; "": none
	stop      func() // interrupts the setup
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
		x.wheels[name] = content
		lines = append(lines, fmt.Sprintf("%s==1.0 \\\n    --hash=sha256:%x\n", name, sha256.Sum256(content)))
	}
	slices.Sort(lines)
	x.list = list(strings.Join(lines, ""))
	return x
}

func (x *index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, file := strings.CutSuffix(path.Base(r.URL.Path), ending)
	if !file {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="/files/%[1]s%[2]s">%[1]s%[2]s</a>`, name, ending)
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
	_, _ = w.Write(x.wheels[name])
}

// TestInterruptedSetup interrupts two setups while they fetch a package. The setup after each of
// them must fetch only the missing packages, and report this in lines.
func TestInterruptedSetup(t *testing.T) {
	t.Parallel()
	err := exec.CommandContext(t.Context(), "python3", "-c", "import ensurepip").Run()
	if err != nil {
		skip(t, "a python3 that can make environments is needed: %v", err)
	}
	x, cache := newIndex(t), t.TempDir()
	server := httptest.NewServer(x)
	defer server.Close()
	for _, run := range []struct {
		signal    syscall.Signal // signal that ends the setup
		interrupt string         // package at whose request the signal is sent; "": no signal
		fetched   []string       // packages that the setup fetches before it ends
		lines     []string
	}{
		{syscall.SIGKILL, "p07", []string{"ipython", "matplotlib", "p00", "p01", "p02", "p03", "p04", "p05", "p06"}, []string{"fetched 8 of 18 packages"}},
		{syscall.SIGINT, "p15", []string{"p06", "p07", "p08", "p09", "p10", "p11", "p12", "p13", "p14"}, []string{"8 of them were fetched before", "fetched 16 of 18 packages"}},
		{0, "", []string{"p14", "p15"}, []string{"16 of them were fetched before", "fetched 18 of 18 packages", "installed 16 of 18 packages", "installed 18 of 18 packages", "the Python environment is ready"}},
	} {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PIP_") }),
			listVariable+"="+string(x.list), "XDG_CACHE_HOME="+cache, "PIP_INDEX_URL="+server.URL+"/simple", Variable+"=")
		var said bytes.Buffer
		cmd.Stderr = &said
		x.mu.Lock()
		x.asked, x.interrupt, x.stop = nil, run.interrupt, func() { _ = cmd.Process.Signal(run.signal) }
		err := cmd.Start()
		x.mu.Unlock()
		must.Do(t, err)
		if err := cmd.Wait(); (err == nil) != (run.signal == 0) {
			t.Fatalf("a setup that %q is sent: %v, %s", run.signal, err, &said)
		}
		x.mu.Lock()
		asked := slices.Clone(x.asked)
		x.mu.Unlock()
		if diff := cmp.Diff(run.fetched, asked); diff != "" {
			t.Errorf("fetched before %q (-want +got):\n%s", run.signal, diff)
		}
		for _, line := range run.lines {
			if !strings.Contains(said.String(), line) {
				t.Errorf("no %q in %s", line, &said)
			}
		}
	}
	left, err := os.ReadDir(filepath.Join(cache, "e2bctl", "python"))
	if err != nil || len(left) != 2 {
		t.Errorf("got %v, %v; want the environment and the lock", left, err)
	}
}
