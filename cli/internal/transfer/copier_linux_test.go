package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/cloud/envd/envdtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// newSandbox returns a sandbox that is a directory of this machine, and that directory. A
// file called cut breaks off, and no program starts that has to do with one called nochmod. The
// home of the user "other" is the directory "other" in it.
func newSandbox(t *testing.T) (sb *sandbox.Sandbox, home string) {
	t.Helper()
	home = t.TempDir()
	daemon := envdtest.Start(t, "", envdtest.User{Name: "user", Home: home}, envdtest.User{Name: "other", Home: filepath.Join(home, "other")})
	url := envdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Query().Get("path"), "cut"):
			w.Header().Set("Content-Length", "10")
			fmt.Fprint(w, "begun")
			panic(http.ErrAbortHandler)
		case strings.HasSuffix(r.URL.Path, "/Start"):
			body, _ := io.ReadAll(r.Body)
			if bytes.Contains(body, []byte("nochmod")) {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		daemon.ServeHTTP(w, r)
	})
	client, err := sandbox.NewClient(sandbox.WithAPIKey("e2b_00000000"), sandbox.WithAPIURL(url), sandbox.WithSandboxURL(url), sandbox.WithEnvFile(""), sandbox.WithMaxRetries(0))
	must.Do(t, err)
	t.Cleanup(func() { _ = client.Close() })
	sb, err = client.Create(t.Context())
	must.Do(t, err)
	t.Cleanup(func() { _ = sb.Close() })
	return sb, home
}

// list returns the content of a directory: modes, names, and the text of files.
func list(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		all[name] = info.Mode().String() + " " + string(text)
		return err
	})
	must.Do(t, err)
	return all
}

func write(t *testing.T, dir, name, text string, mode os.FileMode) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), mode))
}

func flags(up, down []pair) *Flags {
	return &Flags{uploads: up, downloads: down, maxBytes: sandbox.DefaultMaxBytes, maxFiles: sandbox.DefaultMaxFiles}
}

// Files and directories are copied to the paths of the command line, and executable files
// stay executable.
func TestUpload(t *testing.T) {
	t.Parallel()
	sb, home := newSandbox(t)
	local := t.TempDir()
	at := func(name string) string { return filepath.Join(local, name) }
	write(t, local, "plain", "text", 0o644)
	write(t, local, "tool it's", "#!", 0o755)
	write(t, local, "-x", "#!", 0o755)
	write(t, local, "tree/deep/a", "a", 0o640)
	must.Do(t, syscall.Mkfifo(at("tree/p\x1b[31m"), 0o600))
	var warn strings.Builder
	f := flags([]pair{
		{at("plain"), "as"}, {at("plain"), "into/"}, {at("plain"), "~/home"},
		{at("tool it's"), "bin/tool it's"}, {at("tool it's"), "bin/"}, {at("-x"), "./"}, {at("tree"), "copy"},
	}, nil)
	f.maxBytes = 1 // bounds downloads alone
	if err := f.Check(); err != nil {
		t.Error(err)
	}
	must.Do(t, f.In(sb, "", &warn).Upload(t.Context()))
	want := map[string]string{
		"as": "-rw-r--r-- text", "into/plain": "-rw-r--r-- text", "home": "-rw-r--r-- text",
		"bin/tool it's": "-rwxr-xr-x #!", "-x": "-rwxr-xr-x #!", "copy/deep/a": "-rw-r----- a",
	}
	if diff := cmp.Diff(want, list(t, home)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := warn.String(); !strings.HasPrefix(got, "skipped p") || strings.ContainsRune(got, 0x1b) || strings.Count(got, "\n") != 1 {
		t.Errorf("got the warning %q, want a line about the pipe that no terminal obeys", got)
	}
}

// A missing file to upload is reported before anything is done, and stops the command.
func TestUploadOfNothing(t *testing.T) {
	t.Parallel()
	sb, home := newSandbox(t)
	local := t.TempDir()
	write(t, local, "there", "text", 0o644)
	there, gone := filepath.Join(local, "there"), filepath.Join(local, "gone")
	f := flags([]pair{{there, "1"}, {gone, "2"}, {there, "3"}}, nil)
	for how, err := range map[string]error{"Check": f.Check(), "Upload": f.In(sb, "", os.Stderr).Upload(t.Context())} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "uploading "+gone+": ") {
			t.Errorf("%s: got %v, want that it is not there", how, err)
		}
	}
	if diff := cmp.Diff(map[string]string{"1": "-rw-r--r-- text"}, list(t, home)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := flags([]pair{{there, "1"}}, nil).Check(); err != nil {
		t.Errorf("got %v, want nothing to be missing", err)
	}
}

// Files and directories are copied to the paths of the command line, regardless of existing
// files.
func TestDownload(t *testing.T) {
	t.Parallel()
	sb, home := newSandbox(t)
	write(t, home, "plain", "text", 0o644)
	write(t, home, "tree/deep/a", "a", 0o640)
	must.Do(t, os.Symlink("plain", filepath.Join(home, "to-plain")))
	must.Do(t, os.Symlink("tree", filepath.Join(home, "to-tree")))
	local := t.TempDir()
	write(t, local, "old", "much longer", 0o644)
	write(t, local, "dir/kept", "kept", 0o644)
	at := func(name string) string { return filepath.Join(local, name) }
	f := flags(nil, []pair{
		{"plain", at("old")}, {"plain", at("dir")}, {"~/plain", at("new") + "/"}, {"plain", at("a/b/c")},
		{"tree", at("copy")}, {"tree/", at("dir")}, {"to-plain", at("linked")}, {"to-tree", at("linked-tree")},
	})
	must.Do(t, f.In(sb, "", os.Stderr).DownloadAfter(t.Context(), "run", nil))
	want := map[string]string{
		"old": "-rw-r--r-- text", "dir/kept": "-rw-r--r-- kept", "dir/plain": "-rw-r--r-- text", "new/plain": "-rw-r--r-- text",
		"a/b/c": "-rw-r--r-- text", "copy/deep/a": "-rw-r----- a", "dir/deep/a": "-rw-r----- a",
		"linked": "-rw-r--r-- text", "linked-tree/deep/a": "-rw-r----- a",
	}
	if diff := cmp.Diff(want, list(t, local)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A download has its limits, for a file and for a directory, exact to the byte and to the
// entry.
func TestDownloadLimits(t *testing.T) {
	t.Parallel()
	sb, home := newSandbox(t)
	write(t, home, "file", "12345", 0o644)
	write(t, home, "empty", "", 0o644)
	write(t, home, "tree/a", "12345", 0o644)
	for _, tt := range []struct {
		source string
		bytes  cmdutil.Size
		files  cmdutil.Count
		ok     bool
	}{
		{"file", 4, 9, false},
		{"file", 5, 9, true},
		{"file", 6, 9, true},
		{"empty", 1, 9, true},
		{"tree", 4, 9, false},
		{"tree", 5, 9, true},
		{"tree", 5, 2, true}, // the directory itself is one
		{"tree", 5, 1, false},
	} {
		target := filepath.Join(t.TempDir(), "target")
		f := flags(nil, []pair{{tt.source, target}})
		f.maxBytes, f.maxFiles = tt.bytes, tt.files
		err := f.In(sb, "", os.Stderr).DownloadAfter(t.Context(), "run", nil)
		if tt.ok && err != nil || !tt.ok && !errors.Is(err, sandbox.ErrTooLarge) {
			t.Errorf("%s, %d bytes and %d files: got %v, want it to come: %v", tt.source, tt.bytes, tt.files, err, tt.ok)
		}
		if err != nil && (!strings.Contains(err.Error(), "--max-download") || !strings.Contains(err.Error(), "--max-files")) {
			t.Errorf("%s: got %v, want the flags of the limits", tt.source, err)
		}
	}
}

// One download that fails does not stop the others. Its error is added to the earlier
// error, and is only a warning if that is the status of a command.
func TestDownloadFails(t *testing.T) {
	t.Parallel()
	sb, home := newSandbox(t)
	write(t, home, "there", "text", 0o644)
	write(t, home, "cut", "begun and more", 0o644)
	before := errors.New("before")
	for _, source := range []string{"gone", "cut"} {
		for _, came := range []error{nil, before, cmdutil.RemoteStatus(3)} {
			local := t.TempDir()
			var warn strings.Builder
			f := flags(nil, []pair{{source, filepath.Join(local, "1")}, {"there", filepath.Join(local, "2")}})
			err := f.In(sb, "", &warn).DownloadAfter(t.Context(), "run", came)
			said := "downloading " + source + ": "
			if err == nil || came != nil && !errors.Is(err, came) {
				t.Fatalf("%s after %v: got %v, want an error, and that", source, came, err)
			}
			_, kept := errors.AsType[cmdutil.RemoteStatus](came)
			if strings.HasPrefix(warn.String(), "e2bctl: run: "+said) != kept || strings.Contains(err.Error(), said) == kept {
				t.Errorf("%s after %v: got %v and the warning %q, want it to be a warning: %v", source, came, err, warn.String(), kept)
			}
			if text, err := os.ReadFile(filepath.Join(local, "2")); err != nil || string(text) != "text" {
				t.Errorf("%s after %v: the next download has %q and error %v", source, came, text, err)
			}
		}
	}
}
