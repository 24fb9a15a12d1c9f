package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// scripts makes the Python scripts of a service print one text after another, each for one script. A script whose text is
// "fails" fails. It returns a function that returns the number of scripts that ran.
func (s *pipService) scripts(texts ...string) (ran func() int) {
	usual, n := s.start, 0
	s.start = func(ctx context.Context, r *process.StartRequest, stream *startStream) error {
		if r.GetProcess().GetCmd() != pipPython {
			return usual(ctx, r, stream)
		}
		s.filesMu.Lock()
		defer s.filesMu.Unlock()
		text := "{}"
		if n < len(texts) {
			text = texts[n]
		}
		n++
		_ = started(stream, 1)
		if text == "fails" {
			return ended(stream, 1, "exit status 1")
		}
		_ = stdout(stream, []byte(text))
		return ended(stream, 0, "exit status 0")
	}
	return func() int {
		s.filesMu.Lock()
		defer s.filesMu.Unlock()
		return n
	}
}

// TestStepsOfAnInstallation checks the result of each script of an installation, and that one that fails ends the
// installation, leaves nothing behind and lets the next one begin.
func TestStepsOfAnInstallation(t *testing.T) {
	t.Parallel()
	const before, after = `{"directory":"/site","packages":{"have":"1","other":"1"}}`, `{"directory":"/site","packages":{"have":"2","other":"1","new":"1","Dep":"3"}}`
	const imported = `{"package":"new","module":"new"}` + "\n" + `{"error":""}`
	all := []InstalledPackage{{"Dep", "3"}, {"have", "2"}, {"new", "1"}}
	for name, tt := range map[string]struct {
		scripts []string
		says    string // pip
		asked   []string
		want    *Installation
		text    string // of the error
		runs    int    // of pip
		ran     int    // scripts
	}{
		"whole": {scripts: []string{before, after, imported}, asked: []string{"new", "have"}, want: &Installation{Packages: all}, runs: 1, ran: 3},
		"nothing new": {
			scripts: []string{before, before}, asked: []string{"have"}, want: &Installation{Packages: []InstalledPackage{{"have", "1"}}}, runs: 1, ran: 2,
		},
		"an import's name": {
			scripts: []string{before, before}, asked: []string{"PIL", "other"}, runs: 1, ran: 2,
			want: &Installation{Packages: []InstalledPackage{{"other", "1"}}, Renamed: []RenamedPackage{{"PIL", "pillow"}}},
		},
		"excluded": {
			scripts: []string{before, before}, asked: []string{"have; os_name=='x'", "other"}, runs: 1, ran: 2,
			says: "Ignoring have: markers 'os_name == \"x\"' don't match your environment\n",
			want: &Installation{Packages: []InstalledPackage{{"other", "1"}}, Excluded: []ExcludedRequirement{{"have", `os_name == "x"`}}},
		},
		"excluded once": {
			scripts: []string{before, before}, asked: []string{"have; os_name=='x'", "have"}, runs: 1, ran: 2,
			says: "Ignoring have: markers 'os_name == \"x\"' don't match your environment\n",
			want: &Installation{Packages: []InstalledPackage{{"have", "1"}}, Excluded: []ExcludedRequirement{{"have", `os_name == "x"`}}},
		},
		"not importable": {
			scripts: []string{before, after, "fails"}, asked: []string{"new"}, runs: 1, ran: 3,
			want: &Installation{Packages: all, NotImportable: []ImportFailure{{"", "", "Python ended with status 1"}}},
		},
		"no list":        {scripts: []string{"fails"}, asked: []string{"new"}, text: "list packages in " + testID, ran: 1},
		"no JSON":        {scripts: []string{"x"}, asked: []string{"new"}, text: "list packages in " + testID, ran: 1},
		"no list after":  {scripts: []string{before, "fails"}, asked: []string{"new"}, text: "list packages in " + testID, runs: 1, ran: 2},
		"an option":      {asked: []string{"--pre"}, text: "--pre"},
		"a missing file": {asked: []string{"/none/x-1-py3-none-any.whl"}, text: "x-1-py3-none-any.whl"},
	} {
		s := newPipService(t)
		s.says = tt.says
		ran := s.scripts(tt.scripts...)
		sb := s.sandbox()
		got, err := sb.Packages.Install(t.Context(), tt.asked, nil)
		if (err == nil) != (tt.text == "") || err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: got %+v and error %v, want %q", name, got, err, tt.text)
		}
		if tt.want != nil && cmp.Diff(tt.want, got) != "" {
			t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(tt.want, got))
		}
		if len(s.runs) != tt.runs || ran() != tt.ran {
			t.Errorf("%s: got the runs %q and %d scripts, want %d and %d", name, s.runs, ran(), tt.runs, tt.ran)
		}
		if tt.runs > 0 {
			patience.Until(t, "the directory is removed", func() bool { s.filesMu.Lock(); defer s.filesMu.Unlock(); return s.removed == s.directory })
		}
		if len(sb.Packages.turn) > 0 {
			t.Errorf("%s: the next installation would wait for ever", name)
		}
	}
}

// TestInstallationsTakeTurns checks that an installation waits for another one, and no longer than its context.
func TestInstallationsTakeTurns(t *testing.T) {
	t.Parallel()
	sb := newPipService(t).sandbox()
	sb.Packages.turn <- struct{}{}
	enough := errors.New("enough")
	for name, call := range map[string]func(context.Context) error{
		"Install":     func(ctx context.Context) error { return second(sb.Packages.Install(ctx, []string{"a"}, nil)) },
		"InstallLock": func(ctx context.Context) error { return second(sb.Packages.InstallLock(ctx, &LockFile{}, nil)) },
		"Lock":        func(ctx context.Context) error { return second(sb.Packages.Lock(ctx, []string{"a"}, nil)) },
	} {
		ctx, end := context.WithCancelCause(patience.Context(t))
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		patience.Until(t, "the call waits", func() bool { sb.mu.Lock(); defer sb.mu.Unlock(); return len(sb.calls) == 1 })
		end(enough)
		if err := <-ended; !isError(err, enough, "wait for another installation in "+testID) {
			t.Errorf("%s: got error %v, want %v", name, err, enough)
		}
	}
	<-sb.Packages.turn
	must.Do(t, second(sb.Packages.Install(t.Context(), []string{"have"}, nil)))
	sb.running.Wait() // for the removal of directories
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if n := len(sb.calls); n > 0 {
		t.Errorf("%d calls have not ended", n)
	}
}

// TestKnownInstallation checks that pip does not run for requirements that were installed before, unless one of them is a
// file.
func TestKnownInstallation(t *testing.T) {
	t.Parallel()
	s := newPipService(t)
	p := s.sandbox().Packages
	lock := &LockFile{Packages: []LockedPackage{locked("a", "")}}
	text, err := lock.MarshalText()
	must.Do(t, err)
	done := &Installation{Packages: []InstalledPackage{{"a", "1"}}}
	wheel := filepath.Join(t.TempDir(), "a-1-py3-none-any.whl")
	must.Do(t, os.WriteFile(wheel, nil, 0o600))
	p.done = map[string]*Installation{"a\nb": done, wheel: done, string(text) + "a\nb": done} // the service does not report its directories
	for name, call := range map[string]func() (*Installation, error){
		"Install": func() (*Installation, error) { return p.Install(t.Context(), []string{"a", "b"}, nil) },
		"InstallLock": func() (*Installation, error) {
			return p.InstallLock(t.Context(), lock, &InstallLockParams{Require: []string{"a", "b"}})
		},
	} {
		got, err := call()
		must.Do(t, err)
		if diff := cmp.Diff(done, got); diff != "" || len(s.runs) > 0 {
			t.Errorf("%s: got the runs %q (-want +got):\n%s", name, s.runs, diff)
		}
	}
	if got, _ := p.Install(t.Context(), []string{wheel}, nil); got == done || len(s.runs) == 0 {
		t.Errorf("a file: got %+v after the runs %q, want that it is read again", got, s.runs)
	}
}

// TestRunsOfPip checks the parts of a run of pip: its certificates, its output, and the reasons of its failure in its log.
func TestRunsOfPip(t *testing.T) {
	t.Parallel()
	const certificate = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
	t.Run("certificates", func(t *testing.T) {
		t.Parallel()
		for _, deny := range []string{"", "certificates.pem"} {
			s := newPipService(t)
			s.deny = deny
			p := s.sandbox().Packages
			p.index = &PackageIndex{Certificates: []byte(certificate)}
			_, err := p.Install(t.Context(), []string{"have"}, nil)
			if (err != nil) != (deny != "") || len(s.runs) != map[bool]int{true: 1}[err == nil] || err == nil && s.content["D/certificates.pem"] != certificate {
				t.Errorf("denied %q: got error %v, the runs %q and the files %q", deny, err, s.runs, s.content)
			}
			patience.Until(t, "a directory is removed", func() bool { s.filesMu.Lock(); defer s.filesMu.Unlock(); return s.removed != "" })
		}
	})
	t.Run("output", func(t *testing.T) {
		t.Parallel()
		s := newPipService(t)
		s.says = "Collecting have\nno newline"
		p := s.sandbox().Packages
		var output bytes.Buffer
		must.Do(t, second(p.Install(t.Context(), []string{"have"}, &InstallParams{Output: &output})))
		if output.String() != s.says {
			t.Errorf("got %q, want %q", output.String(), s.says)
		}
		for _, says := range []string{"a line\n", "no newline"} {
			s.says = says
			r, w := io.Pipe()
			r.CloseWithError(errFull)
			if _, err := p.Install(t.Context(), []string{"other"}, &InstallParams{Output: w}); !isError(err, errFull, "install packages in "+testID) {
				t.Errorf("an output that fails: got error %v, want %v", err, errFull)
			}
		}
	})
	t.Run("log", func(t *testing.T) {
		t.Parallel()
		s := newPipService(t)
		s.fails = "install"
		usual := s.start
		s.start = func(ctx context.Context, r *process.StartRequest, stream *startStream) error {
			if r.GetProcess().GetCmd() != "grep" {
				return usual(ctx, r, stream)
			}
			if args := r.GetProcess().GetArgs(); !strings.HasSuffix(args[len(args)-1], "/log") {
				t.Errorf("the log is searched with %q", args)
			}
			_ = errors.Join(started(stream, 1), stdout(stream, []byte("Could not fetch URL https://index.test/a/: timed out - skipping\n")))
			return ended(stream, 0, "exit status 0")
		}
		_, err := s.sandbox().Packages.Install(t.Context(), []string{"a"}, nil)
		failed, ok := errors.AsType[*InstallError](err)
		if !ok || !failed.Unreachable || failed.Offline || failed.why != "timed out" {
			t.Errorf("got %+v, want that the index could not be asked", err)
		}
		must.Is(t, err, ErrRetryable)
	})
}
