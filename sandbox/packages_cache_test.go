package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

var (
	sumA = strings.Repeat("a", 64)
	sumB = strings.Repeat("b", 64)
)

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// cached returns the content that a cache has for a hash, or "".
func cached(t *testing.T, c wheelCache, sum string) string {
	t.Helper()
	f := c.open([]string{sumB, sum})
	if f == nil {
		return ""
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	must.Do(t, err)
	return string(content)
}

func files(t *testing.T, directory string) int {
	t.Helper()
	entries, err := os.ReadDir(directory)
	must.Do(t, err)
	return len(entries)
}

// Nothing is kept under a hash that is not its own.
func TestWheelCache(t *testing.T) {
	t.Parallel()
	c := wheelCache{directory: filepath.Join(t.TempDir(), "wheels"), limit: 100}
	sum := sumOf("wheel")
	if got := cached(t, c, sum); got != "" {
		t.Errorf("an empty cache has %q", got)
	}
	if err := c.add([]string{sum}, strings.NewReader("poison")); err == nil || !strings.Contains(err.Error(), sumOf("poison")) {
		t.Errorf("what the lock does not have: %v", err)
	}
	if err := c.add([]string{sumOf(strings.Repeat("x", 101))}, strings.NewReader(strings.Repeat("x", 101))); err == nil {
		t.Error("more than may be kept")
	}
	if n := files(t, c.directory); n != 0 {
		t.Errorf("%d files are left of what was refused", n)
	}
	most := strings.Repeat("x", 100)
	must.Do(t, c.add([]string{sumOf(most)}, strings.NewReader(most)))
	if got := cached(t, c, sumOf(most)); got != most {
		t.Errorf("of as much as may be kept %d bytes were kept", len(got))
	}
	later := time.Now().Add(time.Hour) // the clock of files can be behind
	must.Do(t, os.Chtimes(filepath.Join(c.directory, sumOf(most)), later, later))
	must.Do(t, c.add([]string{sumA, sum}, strings.NewReader("wheel")))
	if got := cached(t, c, sum); got != "wheel" {
		t.Errorf("%q", got)
	}
	must.Do(t, os.WriteFile(filepath.Join(c.directory, sum), []byte("whee!"), 0o600))
	if got := cached(t, c, sum); got != "" || files(t, c.directory) != 0 {
		t.Errorf("what was spoiled on the disk: %q", got)
	}
	c.limit = -1
	if c.enabled() || cached(t, c, sum) != "" {
		t.Error("a cache that is off")
	}
}

// The least recently used wheels are removed first, and so are the unfinished
// files of a program that died.
func TestWheelCacheTrim(t *testing.T) {
	t.Parallel()
	c := wheelCache{directory: t.TempDir(), limit: 30}
	old := time.Now().Add(-2 * partAge)
	part := filepath.Join(c.directory, partPrefix+"1")
	must.Do(t, os.WriteFile(part, []byte("half"), 0o600))
	must.Do(t, os.Chtimes(part, old, old))
	var sums []string
	for i := range 3 {
		content := fmt.Sprintf("wheel %04d", i)
		sums = append(sums, sumOf(content))
		must.Do(t, c.add(sums[i:], strings.NewReader(content)))
		must.Do(t, os.Chtimes(filepath.Join(c.directory, sums[i]), old, old.Add(time.Duration(i)*time.Second)))
	}
	if _, err := os.Stat(part); err == nil {
		t.Error("half a wheel is left")
	}
	if cached(t, c, sums[0]) == "" { // used now
		t.Fatal("all three fit")
	}
	must.Do(t, c.add([]string{sumOf("one more!!")}, strings.NewReader("one more!!")))
	if cached(t, c, sums[0]) == "" || cached(t, c, sums[1]) != "" || cached(t, c, sums[2]) == "" {
		t.Error("not the one that was used least lately was removed")
	}
}

// Many callers at once, in one directory that is too small: each finds the wheel
// complete or not at all.
func TestWheelCacheConcurrent(t *testing.T) {
	t.Parallel()
	c := wheelCache{directory: t.TempDir(), limit: 3000}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 20 {
				content := strings.Repeat(fmt.Sprint((i+j)%5), 1000)
				if err := c.add([]string{sumOf(content)}, strings.NewReader(content)); err != nil {
					t.Error(err)
				}
				if got := cached(t, c, sumOf(content)); got != "" && got != content {
					t.Errorf("%.10q for %.10q", got, content)
				}
			}
		})
	}
	group.Wait()
	if n := files(t, c.directory); n > 5 {
		t.Errorf("%d files", n)
	}
}

// By default wheels are kept only for services on this machine.
func TestWheelCacheIsNear(t *testing.T) {
	t.Parallel()
	for address, on := range map[string]bool{
		"http://127.0.0.1:3000": true, "http://localhost:1": true, "http://[::1]:1": true, "": false, "https://sandbox.e2b.app": false, "http://10.0.0.1": false,
	} {
		if got := wheelCacheOf(nil, address).enabled(); got != on {
			t.Errorf("%q: %v", address, got)
		}
	}
	if !wheelCacheOf(&wheelCache{}, "https://sandbox.e2b.app").enabled() || wheelCacheOf(&wheelCache{limit: -1}, "http://localhost").enabled() {
		t.Error("the option does not decide")
	}
}

// TestCachedWheelsAreBrought checks that cached wheels become files of root, that a wheel that does not
// arrive is an error, that the caller learns that there is a directory to remove, and that no wheel
// stays open.
func TestCachedWheelsAreBrought(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusInsufficientStorage} {
		s := newService(t)
		var mu sync.Mutex
		var paths []string
		s.files = func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			paths = append(paths, r.FormValue("username")+" "+r.URL.Query().Get("path"))
			if status != http.StatusOK {
				w.WriteHeader(status)
			}
			fmt.Fprint(w, `[{"name":"a.whl","path":"/w/a.whl","type":"file"}]`)
		}
		sb := s.sandbox()
		p := &Packages{sb: sb, wheels: wheelCache{directory: t.TempDir(), limit: 100}}
		must.Do(t, p.wheels.add([]string{sumOf("wheel")}, strings.NewReader("wheel")))
		lock := &LockFile{Packages: []LockedPackage{
			{Name: "a", Version: "1", File: "a.whl", SHA256: []string{sumOf("wheel")}},
			{Name: "b", Version: "1", File: "b.whl", SHA256: []string{sumOf("other")}},
			{Name: "c", Version: "1", SHA256: []string{sumOf("wheel")}},
		}}
		run := &pipRun{sb: sb}
		absent, err := p.bring(t.Context(), run, lock, "/w")
		if (err == nil) != (status == http.StatusOK) || !run.used {
			t.Errorf("%d: got error %v, and the directory is said to be in use: %v", status, err, run.used)
		}
		if err == nil && (len(absent.Packages) != 2 || absent.Packages[0].Name != "b" || absent.Packages[1].Name != "c") {
			t.Errorf("absent are %v, want b and c", absent.Packages)
		}
		if want := []string{"root /w/a.whl"}; !slices.Equal(paths, want) {
			t.Errorf("%d: got the uploads %q, want %q", status, paths, want)
		}
		if open := fdtest.Open(t, p.wheels.directory); len(open) > 0 {
			t.Errorf("%d: %q are still open", status, open)
		}
	}
}

// TestLockThatCannotBeWritten checks that pip does not run with a lock that cannot be written.
func TestLockThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	malformed := &LockFile{Packages: []LockedPackage{{Name: "-r /etc/passwd", Version: "1"}}}
	err := new(Packages).fetch(t.Context(), &pipRun{}, malformed, "/w") // there is no sandbox to run it in
	if _, ok := errors.AsType[*RequirementError](err); !ok {
		t.Errorf("got error %v, want a *RequirementError", err)
	}
}
