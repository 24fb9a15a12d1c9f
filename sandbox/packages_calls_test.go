package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// pipService is a service whose sandbox has a pip, and files of root.
type pipService struct {
	*service
	report string // that pip writes
	says   string // the output of pip
	fails  string // the first word of a run of pip that fails
	deny   string // the name of a file that cannot be written

	filesMu   sync.Mutex
	content   map[string]string // of the files, whose directory is called D
	runs      []string          // of pip
	removed   string
	directory string
}

// newPipService returns a service whose sandbox has the package "have" in version 1.
func newPipService(t *testing.T) *pipService {
	t.Helper()
	s := &pipService{service: newService(t), content: map[string]string{}}
	s.files = s.serveFile
	s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		_ = started(stream, 1)
		p := r.GetProcess()
		args := p.GetArgs()
		s.mu.Lock()
		user := s.starter
		s.mu.Unlock()
		if user != "root" || p.GetCmd() != "rm" && p.GetCmd() != "grep" && p.GetCwd() != "/" {
			t.Errorf("%s %q runs as %q in %q", p.GetCmd(), args, user, p.GetCwd())
		}
		s.filesMu.Lock()
		defer s.filesMu.Unlock()
		switch {
		case p.GetCmd() == "rm":
			s.removed = args[1]
		case p.GetCmd() == "/bin/sh":
			return s.pip(stream, args[5:])
		case p.GetCmd() == "grep":
			return ended(stream, 1, "exit status 1")
		case !strings.Contains(args[1], "import_module"):
			_ = stdout(stream, []byte(`{"directory":"/site","packages":{"have":"1"}}`))
		}
		return ended(stream, 0, "exit status 0")
	}
	return s
}

// serveFile serves one file.
func (s *pipService) serveFile(w http.ResponseWriter, r *http.Request) {
	s.filesMu.Lock()
	defer s.filesMu.Unlock()
	if r.FormValue("username") != "root" {
		s.t.Errorf("%s %s is not for root", r.Method, r.URL)
	}
	name := r.URL.Query().Get("path")
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		if path.Base(name) == s.deny {
			w.WriteHeader(http.StatusInsufficientStorage)
			return
		}
		s.directory = path.Dir(name)
		if path.Base(s.directory) == "wheels" {
			s.directory = path.Dir(s.directory)
		}
		s.content[strings.Replace(name, s.directory, "D", 1)] = string(body)
		fmt.Fprintf(w, `[{"name":"f","path":%q,"type":"file"}]`, name)
		return
	}
	content, ok := s.content[strings.Replace(name, s.directory, "D", 1)]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		content = `{"code":404,"message":"no such file"}`
	}
	_, _ = io.WriteString(w, content)
}

// pip runs pip.
func (s *pipService) pip(stream *startStream, args []string) error {
	if args[0] != "pip" || args[1] != "--log" {
		s.t.Errorf("pip has the arguments %q", args)
	}
	s.directory = path.Dir(args[2])
	run := strings.ReplaceAll(strings.Join(args[3:], " "), s.directory, "D")
	s.runs = append(s.runs, run)
	_ = stdout(stream, []byte(s.says))
	switch word, _, _ := strings.Cut(run, " "); {
	case word == s.fails:
		_ = stderr(stream, []byte("ERROR: broken\n"))
		return ended(stream, 3, "exit status 3")
	case word == "download":
		s.content["D/wheels/b.whl"] = "wheel b"
	case strings.Contains(run, "--report"):
		s.content["D/report.json"] = s.report
	}
	return ended(stream, 0, "exit status 0")
}

// locked returns a package of a lock.
func locked(name, file string) LockedPackage {
	return LockedPackage{Name: name, Version: "1", SHA256: []string{sumOf("wheel " + name)}, File: file}
}

// TestInstallLock checks how pip runs, and with which files, for wheels that are cached, or not, or that are no wheels.
func TestInstallLock(t *testing.T) {
	t.Parallel()
	a, b, c, have := locked("a", "a-1-py3-none-any.whl"), locked("b", "b-1-py3-none-any.whl"), locked("c", ""), locked("Have", "have-1-py3-none-any.whl")
	const download, install = "download --no-deps --require-hashes --dest D/wheels -r D/fetch.txt", "install --no-compile --no-deps --require-hashes"
	for name, tt := range map[string]struct {
		packages []LockedPackage
		uncached bool // the cache is off
		want     []string
		fetched  []LockedPackage
	}{
		"all kinds":     {packages: []LockedPackage{a, b, c, have}, want: []string{download, install + " --find-links D/wheels -r D/lock.txt"}, fetched: []LockedPackage{b}},
		"cached":        {packages: []LockedPackage{a}, want: []string{install + " --find-links D/wheels --no-index -r D/lock.txt"}},
		"not cached":    {packages: []LockedPackage{b}, want: []string{download, install + " --find-links D/wheels --no-index -r D/lock.txt"}, fetched: []LockedPackage{b}},
		"no wheel":      {packages: []LockedPackage{c}, want: []string{install + " -r D/lock.txt"}},
		"without cache": {packages: []LockedPackage{a, b, c}, uncached: true, want: []string{install + " -r D/lock.txt"}},
		"installed":     {packages: []LockedPackage{have}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newPipService(t)
			s.says = "Collecting\n"
			sb := s.sandbox()
			sb.Packages.wheels = wheelCache{directory: t.TempDir(), limit: 1000}
			must.Do(t, sb.Packages.wheels.add(a.SHA256, strings.NewReader("wheel a")))
			if tt.uncached {
				sb.Packages.wheels.limit = -1
			}
			var output bytes.Buffer
			got, err := sb.Packages.InstallLock(t.Context(), &LockFile{Packages: tt.packages}, &InstallLockParams{Require: []string{"have"}, Output: &output})
			must.Do(t, err)
			if diff := cmp.Diff(&Installation{Packages: []InstalledPackage{{"have", "1"}}}, got); diff != "" {
				t.Errorf("installation (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, s.runs); diff != "" || output.String() != strings.Repeat(s.says, len(tt.want)) {
				t.Errorf("output %q, runs of pip (-want +got):\n%s", output.String(), diff)
			}
			missing := slices.DeleteFunc(slices.Clone(tt.packages), func(p LockedPackage) bool { return p.Name == "Have" })
			for file, packages := range map[string][]LockedPackage{"D/lock.txt": missing, "D/fetch.txt": tt.fetched} {
				var read LockFile
				if text := s.content[file]; text != "" {
					must.Do(t, read.UnmarshalText([]byte(text)))
				}
				if diff := cmp.Diff(packages, read.Packages); diff != "" && len(packages)+len(read.Packages) > 0 {
					t.Errorf("%s (-want +got):\n%s", file, diff)
				}
			}
			if got, brought := s.content["D/wheels/"+a.File]; brought != (len(missing) > 0 && missing[0].Name == "a" && !tt.uncached) || brought && got != "wheel a" {
				t.Errorf("the cached wheel is %q in the sandbox", got)
			}
			if len(tt.want) > 0 {
				patience.Until(t, "the directory is removed", func() bool { s.filesMu.Lock(); defer s.filesMu.Unlock(); return s.removed == s.directory })
			}
		})
	}
}

// TestFetchedWheelsAreKept checks that wheels that pip downloaded are in the cache afterwards, if they are those of the lock.
func TestFetchedWheelsAreKept(t *testing.T) {
	t.Parallel()
	for content, kept := range map[string]bool{"wheel b": true, "poison": false} {
		s := newPipService(t)
		s.content["D/w/b.whl"] = content
		sb := s.sandbox()
		p := &Packages{sb: sb, wheels: wheelCache{directory: t.TempDir(), limit: 1000}}
		s.directory = "/d"
		p.keepAll(t.Context(), &pipRun{sb: sb}, &LockFile{Packages: []LockedPackage{locked("none", "none.whl"), locked("b", "b.whl")}}, "/d/w")
		if got := cached(t, p.wheels, sumOf("wheel b")); (got == content) != kept || !kept && got != "" {
			t.Errorf("after %q the cache has %q", content, got)
		}
	}
}

// TestInstallLockFails checks the errors of installations of locks, and that what is refused does not run pip.
func TestInstallLockFails(t *testing.T) {
	t.Parallel()
	b := locked("b", "b-1-py3-none-any.whl")
	for name, tt := range map[string]struct {
		lock    *LockFile
		require []string
		fails   string // word of pip
		runs    int
		refused string // requirement
		text    string
	}{
		"not locked":   {lock: &LockFile{Packages: []LockedPackage{b}}, require: []string{"b", "other"}, refused: "other", text: "neither in the lock nor in the sandbox"},
		"an option":    {lock: &LockFile{Packages: []LockedPackage{b}}, require: []string{"--pre"}, refused: "--pre"},
		"no lock":      {},
		"download":     {lock: &LockFile{Comment: "Python 3\nmore", Packages: []LockedPackage{b}}, fails: "download", runs: 1, text: `the lock says "Python 3"`},
		"installation": {lock: &LockFile{Comment: "Python 3\nmore", Packages: []LockedPackage{b}}, fails: "install", runs: 2, text: "install b==1: pip ended with status 3"},
	} {
		s := newPipService(t)
		s.fails = tt.fails
		sb := s.sandbox()
		sb.Packages.wheels = wheelCache{directory: t.TempDir(), limit: 1000}
		got, err := sb.Packages.InstallLock(t.Context(), tt.lock, &InstallLockParams{Require: tt.require})
		if got != nil || err == nil || !strings.Contains(err.Error(), tt.text) || len(s.runs) != tt.runs {
			t.Errorf("%s: got %v and error %v, after %d runs of pip", name, got, err, len(s.runs))
		}
		refused, is := errors.AsType[*RequirementError](err)
		if is != (tt.runs == 0) || is && refused.Requirement != tt.refused {
			t.Errorf("%s: got error %#v", name, err)
		}
		if failed, ok := errors.AsType[*InstallError](err); ok && (failed.ExitCode != 3 || !slices.Equal(failed.Requirements, []string{"b==1"}) || failed.Stderr != "ERROR: broken\n") {
			t.Errorf("%s: got %+v", name, failed)
		}
	}
}

// TestFilesOfPipThatCannotBeWritten checks that a file of pip which cannot be written is an error, and that pip does not run
// without it.
func TestFilesOfPipThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	a, b := locked("a", "a-1-py3-none-any.whl"), locked("b", "b-1-py3-none-any.whl")
	wheel := filepath.Join(t.TempDir(), "x-1-py3-none-any.whl")
	must.Do(t, os.WriteFile(wheel, nil, 0o600))
	install := func(ctx context.Context, p *Packages) error {
		return second(p.InstallLock(ctx, &LockFile{Packages: []LockedPackage{a, b}}, nil))
	}
	for name, tt := range map[string]struct {
		do   func(context.Context, *Packages) error
		runs int
	}{
		a.File:                 {install, 0},
		"fetch.txt":            {install, 0},
		"lock.txt":             {install, 1},
		"report.json":          {func(ctx context.Context, p *Packages) error { return second(p.Lock(ctx, []string{"b"}, nil)) }, 0},
		"x-1-py3-none-any.whl": {func(ctx context.Context, p *Packages) error { return second(p.Install(ctx, []string{wheel}, nil)) }, 0},
	} {
		s := newPipService(t)
		s.deny = name
		p := s.sandbox().Packages
		p.wheels = wheelCache{directory: t.TempDir(), limit: 1000}
		must.Do(t, p.wheels.add(a.SHA256, strings.NewReader("wheel a")))
		if err := tt.do(t.Context(), p); !errors.Is(err, syscall.ENOSPC) || len(s.runs) != tt.runs {
			t.Errorf("%s: got error %v after the runs %q, want %v after %d", name, err, s.runs, syscall.ENOSPC, tt.runs)
		}
	}
}

// TestLock checks the run of pip that makes a lock, the lock, and its errors.
func TestLock(t *testing.T) {
	t.Parallel()
	report := `{"install":[{"download_info":{"url":"https://i.test/b-1-py3-none-any.whl","archive_info":{"hashes":{"sha256":"` + sumB + `"}}},"metadata":{"name":"b","version":"1"}}],` +
		`"environment":{"platform_python_implementation":"P","python_version":"3","sys_platform":"s","platform_machine":"m"}}`
	wheel := filepath.Join(t.TempDir(), "x-1-py3-none-any.whl")
	must.Do(t, os.WriteFile(wheel, nil, 0o600))
	for name, tt := range map[string]struct {
		require       []string
		report, fails string
		runs          int
		text          string // of the error
	}{
		"whole":     {require: []string{"b>0", "have"}, report: report, runs: 1},
		"a wheel":   {require: []string{"b", wheel}, text: "a lock is of what an index has"},
		"an option": {require: []string{"--pre"}, text: "--pre"},
		"failure":   {require: []string{"b"}, fails: "install", runs: 1, text: "ERROR: broken"},
		"garbage":   {require: []string{"b"}, report: "x", runs: 1, text: "lock packages: read pip's report"},
		"no report": {require: []string{"b"}, runs: 1, text: "lock packages: read pip's report"},
	} {
		s := newPipService(t)
		s.report, s.fails, s.says = tt.report, tt.fails, "out\n"
		var output bytes.Buffer
		got, err := s.sandbox().Packages.Lock(t.Context(), tt.require, &LockParams{Output: &output})
		if (err == nil) != (tt.text == "") || err != nil && !strings.Contains(err.Error(), tt.text) || len(s.runs) != tt.runs {
			t.Errorf("%s: got error %v, after the runs %q", name, err, s.runs)
		}
		if tt.runs > 0 {
			patience.Until(t, name+": the directory is removed", func() bool { s.filesMu.Lock(); defer s.filesMu.Unlock(); return s.removed == s.directory })
		}
		if tt.runs > 0 && (s.runs[0] != "install --dry-run --prefer-binary --report D/report.json "+strings.Join(tt.require, " ") || !strings.HasPrefix(output.String(), "out\n")) {
			t.Errorf("%s: got the runs %q and output %q", name, s.runs, output.String())
		}
		if tt.text != "" {
			continue
		}
		want := &LockFile{Comment: "For P 3 on s m.\npip install --no-deps --require-hashes -r this file", Packages: []LockedPackage{{"b", "1", []string{sumB}, "b-1-py3-none-any.whl"}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: lock (-want +got):\n%s", name, diff)
		}
	}
}

// TestMissingOfALock checks which packages of a lock a sandbox lacks.
func TestMissingOfALock(t *testing.T) {
	t.Parallel()
	lock := &LockFile{Comment: "c", Packages: []LockedPackage{locked("Same.Name", ""), locked("older", ""), locked("new", "")}}
	got := lock.withoutInstalled(&site{Packages: map[string]string{"same_name": "1", "older": "0", "other": "1"}})
	if diff := cmp.Diff(&LockFile{Comment: "c", Packages: lock.Packages[1:]}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
