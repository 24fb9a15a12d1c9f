//go:build linux

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// index is a package index on this machine's loopback. Sandboxes reach it as
// index.test: their connections leave through a proxy from the environment, which
// connects every request to the index.
type index struct {
	proxy *httptest.Server // through which sandboxes reach it

	mu       sync.Mutex
	wheels   map[string][]byte // by file name
	pages    map[string]func(http.ResponseWriter, *http.Request)
	requests []string
}

const indexURL = "http://index.test/simple/"

func newIndex(t *testing.T) *index {
	t.Helper()
	x := &index{wheels: map[string][]byte{}, pages: map[string]func(http.ResponseWriter, *http.Request){}}
	origin := httptest.NewServer(x)
	t.Cleanup(origin.Close)
	x.proxy = httptest.NewServer(leadTo(t, origin.Listener.Addr().String()))
	t.Cleanup(x.proxy.Close)
	t.Setenv("HTTPS_PROXY", x.proxy.URL)
	return x
}

// cloud returns a cloud whose sandboxes reach the index by its name, which only
// the proxy can resolve.
func (x *index) cloud(t *testing.T, options ...local.Option) *sandboxtest.Cloud {
	t.Helper()
	return sandboxtest.New(t, append(options, local.WithProxyNames())...)
}

// add adds a wheel with one module.
func (x *index) add(t *testing.T, name, version, code string, requires ...string) {
	t.Helper()
	file := fmt.Sprintf("%s-%s-py3-none-any.whl", name, version)
	content := wheel(t, name, version, code, requires...)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wheels[file] = content
}

// asked returns the number of requests for paths with a prefix, and forgets all
// of them.
func (x *index) asked(prefix string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for _, path := range x.requests {
		if strings.HasPrefix(path, prefix) {
			n++
		}
	}
	x.requests = nil
	return n
}

func (x *index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	x.requests = append(x.requests, r.URL.Path)
	page := x.pages[r.URL.Path]
	content, isWheel := x.wheels[strings.TrimPrefix(r.URL.Path, "/files/")]
	name, isPage := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/"), "/simple/")
	var links bytes.Buffer
	for file, content := range x.wheels {
		if project, _, _ := strings.Cut(file, "-"); isPage && strings.ReplaceAll(project, "_", "-") == name {
			sum := sha256.Sum256(content)
			fmt.Fprintf(&links, "<a href=\"/files/%s#sha256=%s\">%[1]s</a>\n", file, hex.EncodeToString(sum[:]))
		}
	}
	x.mu.Unlock()
	switch {
	case page != nil:
		page(w, r)
	case isWheel:
		_, _ = w.Write(content)
	case links.Len() > 0:
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write(links.Bytes())
	default:
		http.NotFound(w, r)
	}
}

// sandbox returns a sandbox of a new cloud that installs from the index.
func (x *index) sandbox(t *testing.T, options ...sandbox.CreateOption) *sandbox.Sandbox {
	t.Helper()
	from := sandbox.WithPackageIndex(sandbox.PackageIndex{URL: indexURL, TrustedHosts: []string{"index.test"}})
	return x.cloud(t, local.WithWarm(0)).Create(t, append(options, from, sandbox.WithEnvs(startsCold))...)
}

// addGreeting adds two versions of greeting and their requirements. The second one cannot be imported.
func (x *index) addGreeting(t *testing.T) {
	t.Helper()
	x.add(t, "greeting", "1.0", "text = 'hello'\n", "words>=1")
	x.add(t, "greeting", "2.0", "import words, nothing_of_the_kind\n", "words>=1")
	x.add(t, "words", "1.5", "n = 1\n")
}

// installs checks what sb reports about the installation of requirements.
func installs(t *testing.T, sb *sandbox.Sandbox, want *sandbox.Installation, requirements ...string) {
	t.Helper()
	got, err := sb.Packages.Install(t.Context(), requirements, nil)
	must.Do(t, err)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%q (-want +got):\n%s", requirements, diff)
	}
}

func TestInstallFromAnIndex(t *testing.T) {
	x := newIndex(t)
	x.addGreeting(t)
	x.add(t, "pillow", "99.0", "mode = 'RGB'\n")
	var log bytes.Buffer
	sb := x.sandbox(t, sandbox.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	one := &sandbox.Installation{Packages: []sandbox.InstalledPackage{{Name: "greeting", Version: "1.0"}, {Name: "words", Version: "1.5"}}}
	installs(t, sb, one, "greeting==1.*")
	if got := sandboxtest.Eval(t, sb, "import greeting, words; greeting.text, words.n"); got != "('hello', 1)" {
		t.Errorf("got %q, want %q", got, "('hello', 1)")
	}
	if x.asked("/") == 0 {
		t.Error("nobody asked the index")
	}

	// The same installation again makes no request, until another one installs or
	// removes something.
	installs(t, sb, one, "greeting==1.*")
	installs(t, sb, one, "greeting==1.*")
	if n := x.asked("/"); n != 0 {
		t.Errorf("the same again made %d requests, want 0", n)
	}
	if _, err := sb.Commands.Run(t.Context(), "pip uninstall -y words", &sandbox.CommandParams{User: "root"}); err != nil {
		t.Fatal(err)
	}
	installs(t, sb, one, "greeting==1.*")
	if n := x.asked("/"); n == 0 {
		t.Error("what was removed did not come back from the index")
	}

	// A package that cannot be imported is reported, and so are a name that was
	// taken for another package and a requirement that is not for this Python.
	installs(t, sb, &sandbox.Installation{
		Packages:      []sandbox.InstalledPackage{{Name: "greeting", Version: "2.0"}},
		RestartNeeded: []string{"greeting"},
		NotImportable: []sandbox.ImportFailure{{Package: "greeting", Module: "greeting", Error: "ModuleNotFoundError: No module named 'nothing_of_the_kind'"}},
	}, "greeting>=2")
	done, err := sb.Packages.Install(t.Context(), []string{"PIL==99"}, nil)
	must.Do(t, err)
	if diff := cmp.Diff([]sandbox.RenamedPackage{{Import: "PIL", Distribution: "pillow"}}, done.Renamed); diff != "" {
		t.Errorf("renamed (-want +got):\n%s", diff)
	}
	if text := log.String(); !strings.Contains(text, "import=PIL installing=pillow") {
		t.Errorf("the log: %s, want %q in it", text, "import=PIL installing=pillow")
	}
	installs(t, sb, &sandbox.Installation{
		Packages: []sandbox.InstalledPackage{{Name: "words", Version: "1.5"}},
		Excluded: []sandbox.ExcludedRequirement{{Name: "greeting", Marker: `python_version < "3"`}},
	}, "words", "greeting; python_version < '3'")
}

// TestInstallOutput checks that the output of pip comes as it is printed, and that a writer that
// fails ends pip.
func TestInstallOutput(t *testing.T) {
	x := newIndex(t)
	x.addGreeting(t)
	sb := x.sandbox(t)
	var out bytes.Buffer
	if _, err := sb.Packages.Install(t.Context(), []string{"greeting==1.*", "words"}, &sandbox.InstallParams{Output: &out}); err != nil || !strings.Contains(out.String(), "Successfully installed greeting-1.0 words-1.5\n") {
		t.Errorf("printed %q, %v", &out, err)
	}
	reader, writer := io.Pipe()
	full := errors.New("the disk is full")
	_ = reader.CloseWithError(full)
	if _, err := sb.Packages.Install(t.Context(), []string{"greeting>=2"}, &sandbox.InstallParams{Output: writer}); !errors.Is(err, full) {
		t.Errorf("output that cannot be written: %v", err)
	}
}

// TestInstallRefused checks the errors of requirements that the index does not meet.
func TestInstallRefused(t *testing.T) {
	x := newIndex(t)
	x.addGreeting(t)
	x.add(t, "words", "2.0", "n = 2\n")
	x.add(t, "late", "1.0", "n = 1\n", "words<2")
	sb := x.sandbox(t)
	_, err := sb.Packages.Install(t.Context(), []string{"no-such-package"}, nil)
	failed, ok := errors.AsType[*sandbox.InstallError](err)
	if !ok || failed.Unreachable || failed.Offline || failed.ExitCode == 0 {
		t.Errorf("a bad name: %#v, want a *sandbox.InstallError with a status although the index could be reached", err)
	}
	if errors.Is(err, api.ErrRetryable) {
		t.Errorf("a bad name: %v, want an error that is not ErrRetryable", err)
	}
	if want := "No matching distribution found for no-such-package"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a bad name: %v, want an error with %q", err, want)
	}
	for want, requirements := range map[string][]string{
		"the requirements contradict each other: The user requested words>=2; late 1.0 depends on words<2": {"late==1.0", "words>=2"},
		"No matching distribution found for words==9: the index has 1.5, 2.0":                              {"words==9"},
	} {
		if _, err := sb.Packages.Install(t.Context(), requirements, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", requirements, err, want)
		}
	}
}

// Installations wait for each other, as long as their contexts allow.
func TestInstallTakesTurns(t *testing.T) {
	x := newIndex(t)
	x.add(t, "words", "1.5", "n = 1\n")
	asked, answer := make(chan struct{}), make(chan struct{})
	x.pages["/simple/slow/"] = func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-answer
		http.NotFound(w, r)
	}
	sb := x.cloud(t, local.WithWarm(0)).Create(t, sandbox.WithPackageIndex(sandbox.PackageIndex{URL: indexURL, TrustedHosts: []string{"index.test"}}))
	first := make(chan error, 1)
	go func() {
		_, err := sb.Packages.Install(t.Context(), []string{"slow"}, nil)
		first <- err
	}()
	select {
	case <-asked:
	case err := <-first:
		t.Fatalf("it ended before it asked: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := sb.Packages.Install(ctx, []string{"words"}, nil)
		second <- err
	}()
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("one that was given up: %v, want context.Canceled", err)
	}
	close(answer)
	if _, ok := errors.AsType[*sandbox.InstallError](<-first); !ok {
		t.Error("the first found a package that is not there")
	}
	if _, err := sb.Packages.Install(t.Context(), []string{"words"}, nil); err != nil {
		t.Error(err)
	}
}

// A run whose packages are already installed begins without pip.
func TestRunWithPackages(t *testing.T) {
	x := newIndex(t)
	x.add(t, "greeting", "1.0", "text = 'hello'\n", "words")
	x.add(t, "words", "1.5", "n = 1\n")
	sb := x.cloud(t).Create(t, sandbox.WithPackageIndex(sandbox.PackageIndex{URL: indexURL, TrustedHosts: []string{"index.test"}}),
		sandbox.WithWheelCache("", -1))

	var out bytes.Buffer
	lock, err := sb.Packages.Lock(t.Context(), []string{"greeting"}, &sandbox.LockParams{Output: &out})
	must.Do(t, err)
	if !strings.Contains(out.String(), "Would install greeting-1.0 words-1.5\n") {
		t.Errorf("the lock printed %q", &out)
	}
	x.asked("")
	for i, p := range []*agent.Params{
		{Lock: lock, Packages: []string{"greeting", "numpy"}, Guard: &agent.Guard{}},
		{Lock: lock, Packages: []string{"greeting", "numpy"}, Guard: &agent.Guard{}},
		{Packages: []string{"greeting>=1"}, Guard: &agent.Guard{}},
	} {
		r, err := agent.Begin(t.Context(), sb, p)
		must.Do(t, err)
		if len(r.Installation.Packages) == 0 {
			t.Errorf("run %d: %+v", i, r.Installation)
		}
		if n := x.asked("/"); (n > 0) != (i == 0) {
			t.Errorf("run %d made %d requests, want some: %v", i, n, i == 0)
		}
		for code, fails := range map[string]bool{"import greeting": false, "import words": true} {
			step, err := r.Exec(t.Context(), code)
			if err != nil || (step.Error != nil) != fails {
				t.Errorf("run %d: %s: %+v, %v, want a Python error: %v and no error", i, code, step, err, fails)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	result, err := sb.RunProgram(t.Context(), &sandbox.ProgramParams{Lock: lock, Packages: []string{"greeting"}, Command: "python3 -c 'import greeting; print(greeting.text)'"})
	if err != nil || result.Stdout != "hello\n" || x.asked("/") != 0 {
		t.Errorf("a program: %+v, %v, %d requests, want stdout %q, no error and no request", result, err, x.asked("/"), "hello\n")
	}
	_, err = agent.Begin(t.Context(), sb, &agent.Params{Lock: lock, Packages: []string{"tulip"}})
	_, ofProgram := sb.RunProgram(t.Context(), &sandbox.ProgramParams{Lock: lock, Packages: []string{"tulip"}, Command: "true"})
	for _, err := range []error{err, ofProgram} {
		if refused, ok := errors.AsType[*sandbox.RequirementError](err); !ok || refused.Requirement != "tulip" {
			t.Errorf("a package that is in no lock: %v, want a *sandbox.RequirementError for %q", err, "tulip")
		}
	}
}

// A lock from another Python fails if the index has other files, or none, for the
// sandbox's Python, and the error names the lock's Python.
func TestLockOfAnotherPython(t *testing.T) {
	x := newIndex(t)
	sb := x.cloud(t, local.WithWarm(0)).Create(t, sandbox.WithPackageIndex(sandbox.PackageIndex{URL: indexURL, TrustedHosts: []string{"index.test"}}),
		sandbox.WithWheelCache("", -1))
	const file = "words-1.0-cp27-cp27m-win32.whl"
	content := wheel(t, "words", "1.0", "")
	x.wheels[file] = content
	sum := sha256.Sum256(content)
	lock := &sandbox.LockFile{Comment: "For CPython 2.7 on win32 x86.\nMade by hand.", Packages: []sandbox.LockedPackage{
		{Name: "words", Version: "1.0", SHA256: []string{hex.EncodeToString(sum[:])}, File: file},
	}}
	for _, mismatch := range []bool{false, true} {
		_, err := sb.Packages.InstallLock(t.Context(), lock, nil)
		failed, ok := errors.AsType[*sandbox.InstallError](err)
		if !ok || failed.HashMismatch != mismatch || !strings.Contains(err.Error(), `the lock says "For CPython 2.7 on win32 x86.": another Python`) {
			t.Errorf("mismatch %v: %v", mismatch, err)
		}
		x.add(t, "words", "1.0", "n = 1\n") // a wheel for any Python
	}
}

func TestLock(t *testing.T) {
	x := newIndex(t)
	x.add(t, "greeting", "1.0", "import words\ntext = 'hello'\n", "words>=1", "numpy")
	x.add(t, "words", "1.5", "n = 1\n")
	cache := t.TempDir()
	cloud := x.cloud(t)
	options := []sandbox.CreateOption{
		sandbox.WithPackageIndex(sandbox.PackageIndex{URL: indexURL, TrustedHosts: []string{"index.test"}}), sandbox.WithWheelCache(cache, 0),
	}
	first := cloud.Create(t, options...)
	lock, err := first.Packages.Lock(t.Context(), []string{"greeting<2"}, nil)
	must.Do(t, err)
	sum := func(file string) []string {
		s := sha256.Sum256(x.wheels[file])
		return []string{hex.EncodeToString(s[:])}
	}
	const greeting, words = "greeting-1.0-py3-none-any.whl", "words-1.5-py3-none-any.whl"
	want := []sandbox.LockedPackage{ // numpy is already installed
		{Name: "greeting", Version: "1.0", SHA256: sum(greeting), File: greeting},
		{Name: "words", Version: "1.5", SHA256: sum(words), File: words},
	}
	if diff := cmp.Diff(want, lock.Packages); diff != "" || !strings.HasPrefix(lock.Comment, "For CPython 3.") {
		t.Errorf("%q, packages (-want +got):\n%s", lock.Comment, diff)
	}
	if got := sandboxtest.Run(t, first, "pip list 2>/dev/null | grep -c greeting || true"); got != "0" {
		t.Errorf("to lock has installed: %s, want %s", got, "0\n")
	}
	text, err := lock.MarshalText()
	must.Do(t, err)
	lock = &sandbox.LockFile{}
	must.Do(t, lock.UnmarshalText(text))

	x.add(t, "words", "1.6", "n = 2\n") // the lock keeps the version
	x.asked("")
	installed := &sandbox.Installation{Packages: []sandbox.InstalledPackage{{Name: "greeting", Version: "1.0"}, {Name: "words", Version: "1.5"}}}
	for i, sb := range []*sandbox.Sandbox{
		first, cloud.Create(t, options...), cloud.Create(t, append(options, sandbox.WithInternet(false))...), cloud.Create(t, append(options, sandbox.WithWheelCache("", -1))...),
	} {
		var out bytes.Buffer
		got, err := sb.Packages.InstallLock(t.Context(), lock, &sandbox.InstallLockParams{Output: &out})
		if err != nil {
			t.Fatalf("sandbox %d: %v", i, err)
		}
		if !strings.Contains(out.String(), "Successfully installed greeting-1.0 words-1.5\n") {
			t.Errorf("sandbox %d printed %q", i, &out)
		}
		if diff := cmp.Diff(installed, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("sandbox %d (-want +got):\n%s", i, diff)
		}
		if got := sandboxtest.Eval(t, sb, "import greeting; greeting.words.n"); got != "1" {
			t.Errorf("sandbox %d: %s, want %s", i, got, "1")
		}
		uncached := i == 0 || i == 3
		if n := x.asked("/"); (n > 0) != uncached {
			t.Errorf("sandbox %d made %d requests, want some: %v", i, n, uncached)
		}
		if got, err := sb.Packages.InstallLock(t.Context(), lock, nil); err != nil || len(got.Packages) != 2 || x.asked("/") != 0 {
			t.Errorf("sandbox %d, again: %+v, %v, %d requests, want 2 packages, no error and no request", i, got, err, x.asked("/"))
		}
		patience.Until(t, "the directory is removed", func() bool { return sandboxtest.Run(t, sb, "ls /tmp | grep -c e2bctl || true") == "0" })
	}
	if kept, err := os.ReadDir(cache); err != nil || len(kept) != 2 {
		t.Errorf("%d wheels are kept, %v, want 2 and no error", len(kept), err)
	}
}

// An index that serves other content, or a sandbox that lies about a wheel,
// changes nothing for other sandboxes.
func TestLockIsKept(t *testing.T) {
	x := newIndex(t)
	x.add(t, "greeting", "1.0", "text = 'hello'\n")
	cache := t.TempDir()
	cloud := x.cloud(t, local.WithWarm(0))
	options := []sandbox.CreateOption{
		sandbox.WithPackageIndex(sandbox.PackageIndex{URL: indexURL, TrustedHosts: []string{"index.test"}}), sandbox.WithWheelCache(cache, 0),
	}
	sb := cloud.Create(t, options...)
	lock, err := sb.Packages.Lock(t.Context(), []string{"greeting"}, nil)
	must.Do(t, err)
	x.add(t, "greeting", "1.0", "text = 'evil'\n")
	_, err = sb.Packages.InstallLock(t.Context(), lock, nil)
	failed, ok := errors.AsType[*sandbox.InstallError](err)
	if !ok || !failed.HashMismatch || errors.Is(err, api.ErrRetryable) {
		t.Errorf("another content: %#v, want a *sandbox.InstallError about the hash", err)
	}
	if want := "what the index gives is not what the lock has"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("another content: %v, want an error with %q", err, want)
	}

	// The pip of this sandbox lies: it "downloads" another wheel, and reports
	// success.
	hostile := cloud.Create(t, append(options, sandbox.WithEnvs(startsCold))...)
	evil := wheel(t, "greeting", "1.0", "text = 'evil'\n")
	must.Do(t, hostile.Files.Write(t.Context(), "/tmp/evil.whl", evil, nil))
	const lying = `
import shutil, sys
if "download" in sys.argv:
    to = sys.argv[sys.argv.index("--dest") + 1]
    import os
    os.makedirs(to)
    shutil.copy("/tmp/evil.whl", to + "/greeting-1.0-py3-none-any.whl")
`
	directory := sandboxtest.Eval(t, hostile, "__import__('os').path.dirname(__import__('pip').__file__)")
	directory = strings.Trim(directory, "'")
	must.Do(t, hostile.Files.Write(t.Context(), directory+"/__main__.py", []byte(lying), &sandbox.FileParams{User: "root"}))
	if _, err := hostile.Packages.InstallLock(t.Context(), lock, nil); err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadDir(cache); err != nil || len(kept) != 0 {
		t.Errorf("%d wheels of a hostile sandbox are kept, %v, want none and no error", len(kept), err)
	}
	for file, spoiled := range map[string]string{"greeting": "--hash=md5:x", "2": "greeting==2 --hash=sha256:" + strings.Repeat("0", 64)} {
		var edited sandbox.LockFile
		err := edited.UnmarshalText([]byte(spoiled))
		if err == nil {
			_, err = sb.Packages.InstallLock(t.Context(), &edited, nil)
		}
		if err == nil {
			t.Errorf("%s: an edited lock installs", file)
		}
	}
}

// Credentials of an index appear in no argument, log or error, and are sent only
// on request.
func TestIndexCredentials(t *testing.T) {
	x := newIndex(t)
	x.add(t, "greeting", "1.0", "text = 'hello'\n")
	var authorized []string
	x.pages["/simple/denied/"] = func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		authorized = append(authorized, password)
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		http.Error(w, "no", http.StatusUnauthorized)
	}
	const password = "s3cr3t-pass"
	given := sandbox.WithPackageIndex(sandbox.PackageIndex{URL: "http://me:" + password + "@index.test/simple/", TrustedHosts: []string{"index.test"}})
	cloud := x.cloud(t, local.WithWarm(0))
	_, err := sandbox.Create(t.Context(), cloud.Option(), given)
	if err == nil || !strings.Contains(err.Error(), "WithPipCredentials") || strings.Contains(err.Error(), password) {
		t.Fatalf("without WithPipCredentials: %v", err)
	}
	var log bytes.Buffer
	sb := cloud.Create(t, given, sandbox.WithPipCredentials(), sandbox.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	if _, err := sb.Packages.Install(t.Context(), []string{"greeting"}, nil); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	_, err = sb.Packages.Install(t.Context(), []string{"denied"}, &sandbox.InstallParams{Output: &printed})
	failed, ok := errors.AsType[*sandbox.InstallError](err)
	if !ok || strings.Contains(fmt.Sprint(err, failed.Stderr, failed.Requirements), password) {
		t.Errorf("got %v, %+v, want a *sandbox.InstallError without %q", err, failed, password)
	}
	if !failed.Unreachable || errors.Is(err, api.ErrRetryable) || !strings.Contains(err.Error(), "401 Client Error") {
		t.Errorf("an index that denies: %v, want an unreachable index, not api.ErrRetryable, and %q", err, "401 Client Error")
	}
	if len(authorized) == 0 || authorized[len(authorized)-1] != password {
		t.Errorf("the index was given %q", authorized)
	}
	if strings.Contains(log.String(), password) {
		t.Error("the log has the password")
	}
	if text := printed.String(); !strings.Contains(text, "index.test") || strings.Contains(text, password) {
		t.Errorf("pip printed %q", text)
	}
}

// An unreachable index is soon reported as unreachable.
func TestIndexUnreachable(t *testing.T) {
	x := newIndex(t)
	x.proxy.Close()
	cloud := x.cloud(t, local.WithWarm(0))
	for _, scheme := range []string{"http", "https"} {
		sb := cloud.Create(t, sandbox.WithPackageIndex(sandbox.PackageIndex{URL: scheme + "://index.test/simple/", TrustedHosts: []string{"index.test"}}))
		_, err := sb.Packages.Install(t.Context(), []string{"greeting"}, nil)
		failed, ok := errors.AsType[*sandbox.InstallError](err)
		if !ok || !failed.Unreachable || failed.Offline {
			t.Errorf("%s: got %#v, want a *sandbox.InstallError of an unreachable index", scheme, err)
		}
		if !errors.Is(err, api.ErrRetryable) {
			t.Errorf("%s: got %v, want ErrRetryable", scheme, err)
		}
		if want := "the package index could not be asked: "; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", scheme, err, want)
		}
	}
}

// When the context ends, pip ends too, also in the sandbox.
func TestInstallIsCancelled(t *testing.T) {
	x := newIndex(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	x.pages["/simple/slow/"] = func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}
	sb := x.cloud(t, local.WithWarm(0)).Create(t, sandbox.WithPackageIndex(sandbox.PackageIndex{URL: indexURL, TrustedHosts: []string{"index.test"}}))
	if _, err := sb.Packages.Install(ctx, []string{"slow"}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	patience.Until(t, "pip ends", func() bool {
		return sandboxtest.Run(t, sb, `grep -alz '^pip$' /proc/[0-9]*/cmdline 2>/dev/null || true`) == ""
	})
	if _, err := sb.Packages.Install(t.Context(), []string{filepath.Join(t.TempDir(), "slow-1.0-py3-none-any.whl")}, nil); !errors.Is(err, api.ErrInvalidArgument) {
		t.Errorf("got %v, want api.ErrInvalidArgument", err)
	}
}
