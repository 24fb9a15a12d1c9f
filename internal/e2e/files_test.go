//go:build linux

package e2e

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestFilesystem(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	files, ctx := sb.Files, t.Context()
	name := "new\nline é%&?+ #"
	must.Do(t, files.WriteText(ctx, "d/sub/"+name, "text", &sandbox.FileParams{Gzip: true, Metadata: map[string]string{"Source": "a test"}}))
	if text, err := files.ReadText(ctx, "d/sub/"+name, &sandbox.FileParams{Gzip: true}); err != nil || text != "text" {
		t.Errorf("got %q, %v, want %q and no error", text, err, "text")
	}
	sandboxtest.Run(t, sb, "cd ~/d && chmod 640 sub/new* && ln -s sub link && ln -s nowhere broken && mkfifo pipe")
	infos, err := files.List(ctx, "d", &sandbox.ListFilesParams{MaxDepth: 2})
	must.Do(t, err)
	type seen struct {
		Name   string
		Type   sandbox.FileType
		Target sandbox.FileType
	}
	var got []seen
	for _, i := range infos {
		got = append(got, seen{i.Name, i.Type, i.TargetType})
	}
	want := []seen{
		{"broken", sandbox.TypeSymlink, ""}, {"link", sandbox.TypeSymlink, sandbox.TypeDir}, {"pipe", "", ""},
		{"sub", sandbox.TypeDir, ""}, {name, sandbox.TypeFile, ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listing (-want +got):\n%s", diff)
	}
	info, err := files.Stat(ctx, "d/sub/"+name, nil)
	must.Do(t, err)
	if info.Size != 4 || info.Mode != 0o640 || info.Permissions != "-rw-r-----" {
		t.Errorf("got %d bytes, mode %v, %q, want 4, %v, %q", info.Size, info.Mode, info.Permissions, fs.FileMode(0o640), "-rw-r-----")
	}
	if info.Owner != "user" || info.Group == "" || info.ModTime.IsZero() {
		t.Errorf("got %+v, want the owner %q, a group and a time", info, "user")
	}
	if _, err := sb.Commands.Run(ctx, `python3 -c 'import os; os.setxattr("d/sub", "user.x", b"y")'`, nil); err == nil {
		if diff := cmp.Diff(map[string]string{"source": "a test"}, info.Metadata); diff != "" {
			t.Errorf("metadata (-want +got):\n%s", diff)
		}
	} // otherwise this kernel's in-memory file systems have no such attributes
	for path, want := range map[string]bool{"d/broken": true, "d": true, "none": false, "d/sub/" + name + "/x": false} {
		if got, err := files.Exists(ctx, path, nil); err != nil || got != want {
			t.Errorf("%q exists: %v, %v, want %v and no error", path, got, err, want)
		}
	}
	for range 2 { // the second time it already exists
		if err := files.MakeDir(ctx, "made/deep", nil); err != nil {
			t.Error(err)
		}
	}
	if err := files.Rename(ctx, "d/sub/"+name, "made/other/x", nil); err != nil {
		t.Error(err)
	}
	for range 2 { // the second time it is already gone
		if err := files.Remove(ctx, "d", nil); err != nil {
			t.Error(err)
		}
	}
	if text, err := files.ReadText(ctx, "made/other/x", nil); err != nil || text != "text" {
		t.Errorf("moved: %q, %v, want %q and no error", text, err, "text")
	}
}

// TestTenWriters checks that when ten writers write one file at once, one complete version
// remains, and that every reader in between sees a complete one.
func TestTenWriters(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	const least, step = 100_000, 50_000
	var writers sync.WaitGroup
	for i := range 10 {
		writers.Go(func() {
			text := strings.Repeat(string(rune('a'+i)), least+i*step)
			if err := sb.Files.WriteText(t.Context(), "one", text, nil); err != nil {
				t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	writers.Wait()
	text, err := sb.Files.ReadText(t.Context(), "one", nil)
	if err != nil || text == "" {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	if i := int(text[0] - 'a'); text != strings.Repeat(text[:1], least+i*step) {
		t.Errorf("the file holds %d bytes, %d of them of writer %d, want %d of one writer", len(text), strings.Count(text, text[:1]), i, least+i*step)
	}
}

// TestBadNames checks that a name that is not UTF-8 neither hides its directory nor keeps the
// directory from being copied or removed.
func TestBadNames(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	sandboxtest.Run(t, sb, `mkdir ~/names && cd ~/names && touch $'a\xff' b 'c
d' && mkdir $'e\xfe' && echo deep > $'e\xfe/f'`)
	infos, err := sb.Files.List(t.Context(), "names", &sandbox.ListFilesParams{MaxDepth: 2})
	must.Do(t, err)
	var got []string
	for _, info := range infos {
		got = append(got, info.Name)
	}
	if diff := cmp.Diff([]string{"a\ufffd", "b", "c\nd", "e\ufffd", "f"}, got); diff != "" {
		t.Errorf("listing (-want +got):\n%s", diff)
	}
	to := t.TempDir()
	must.Do(t, sb.Files.DownloadDir(t.Context(), "names", to, nil))
	if text, err := os.ReadFile(filepath.Join(to, "e\xfe", "f")); err != nil || string(text) != "deep\n" {
		t.Errorf("copied: %q, %v, want %q and no error", text, err, "deep\n")
	}
	if err := sb.Files.Remove(t.Context(), "names", nil); err != nil {
		t.Error(err)
	}
	if found, err := sb.Files.Exists(t.Context(), "names", nil); err != nil || found {
		t.Errorf("removed: %v, %v", found, err)
	}
}

// TestWriteToPipe checks that a pipe receives the written bytes. If no process reads it, the
// write returns an error and does not wait.
func TestWriteToPipe(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	sandboxtest.Run(t, sb, "mkfifo ~/pipe")
	if err := sb.Files.WriteText(t.Context(), "pipe", "x", nil); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "nobody reads") {
		t.Errorf("nobody reads: %v, want fs.ErrInvalid and an error with %q", err, "nobody reads")
	}
	reader, err := sb.Commands.Start(t.Context(), "exec 3<> ~/pipe; echo open; head -c 5 <&3", nil)
	must.Do(t, err)
	for event, err := range reader.Events(t.Context()) {
		must.Do(t, err)
		if string(event.Stdout) == "open\n" {
			must.Do(t, sb.Files.WriteText(t.Context(), "pipe", "hello", nil))
		}
	}
	if result, err := reader.Wait(t.Context()); err != nil || result.Stdout != "open\nhello" {
		t.Errorf("got %+v, %v, want stdout %q and no error", result, err, "open\nhello")
	}
	if err := sb.Files.WriteFrom(t.Context(), "/dev/null", io.LimitReader(pattern{}, 1<<20), nil); err != nil {
		t.Errorf("/dev/null: %v", err)
	}
}

func TestFileFailures(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	files, ctx := sb.Files, t.Context()
	must.Do(t, files.WriteText(ctx, "file", "x", nil))
	first := func(_ any, err error) error { return err }
	for name, tt := range map[string]struct{ err, want error }{
		"read a directory":         {first(files.Read(ctx, "/etc", nil)), syscall.EISDIR},
		"write a directory":        {files.WriteText(ctx, "/etc", "x", nil), syscall.EISDIR},
		"write below a file":       {files.WriteText(ctx, "file/x", "x", nil), syscall.ENOTDIR},
		"list a file":              {first(files.List(ctx, "file", nil)), syscall.ENOTDIR},
		"list what is missing":     {first(files.List(ctx, "none", nil)), fs.ErrNotExist},
		"stat what is missing":     {first(files.Stat(ctx, "none", nil)), fs.ErrNotExist},
		"make a file's directory":  {files.MakeDir(ctx, "file", nil), syscall.ENOTDIR},
		"move what is missing":     {files.Rename(ctx, "none", "x", nil), fs.ErrNotExist},
		"watch a file":             {first(files.Watch(ctx, "file", nil)), syscall.ENOTDIR},
		"watch what is missing":    {first(files.Watch(ctx, "none", nil)), fs.ErrNotExist},
		"list a negative depth":    {first(files.List(ctx, ".", &sandbox.ListFilesParams{MaxDepth: -1})), fs.ErrInvalid},
		"a zero byte":              {files.WriteText(ctx, "a\x00b", "x", nil), fs.ErrInvalid},
		"stat no UTF-8":            {first(files.Stat(ctx, "a\xff", nil)), fs.ErrInvalid},
		"download what is missing": {files.DownloadDir(ctx, "none", filepath.Join(t.TempDir(), "x"), nil), fs.ErrNotExist},
		"download a file":          {files.DownloadDir(ctx, "file", filepath.Join(t.TempDir(), "x"), nil), syscall.ENOTDIR},
	} {
		if failed, ok := errors.AsType[*fs.PathError](tt.err); !ok || !errors.Is(tt.err, tt.want) || !strings.HasPrefix(failed.Path, sb.ID()+":") {
			t.Errorf("%s: %v, want %v", name, tt.err, tt.want)
		}
	}
	for name, err := range map[string]error{
		"read": first(files.Read(ctx, "x", &sandbox.FileParams{User: "stranger"})),
		"stat": first(files.Stat(ctx, "x", &sandbox.PathParams{User: "stranger"})),
	} {
		if err == nil || !strings.Contains(err.Error(), "stranger") {
			t.Errorf("%s as an unknown user: %v, want an error with %q", name, err, "stranger")
		}
	}
	// Names that are not UTF-8 work if they are sent in the URL.
	if err := files.WriteText(ctx, "raw\xff", "raw", nil); err != nil {
		t.Error(err)
	}
	if text, err := files.ReadText(ctx, "raw\xff", nil); err != nil || text != "raw" || sandboxtest.Run(t, sb, `cat ~/raw$'\xff'`) != "raw" {
		t.Errorf("got %q, %v, want %q, also for cat, and no error", text, err, "raw")
	}
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	if bounded := cloud.Report().Disk; strings.HasPrefix(bounded, "not enforced") {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatal(bounded)
		}
		t.Skip(bounded)
	}
	sb := cloud.Create(t)
	must.Do(t, sb.Files.WriteText(t.Context(), "old", "old", nil))
	sandboxtest.Run(t, sb, `free=$(df --output=avail -B1M ~ | tail -1); fallocate -l $((free-2))M ~/fill`)
	for _, name := range []string{"new", "old"} {
		err := sb.Files.WriteFrom(t.Context(), name, io.LimitReader(pattern{}, 64<<20), nil)
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: got %v, want syscall.ENOSPC", name, err)
		}
	}
	sandboxtest.Run(t, sb, "rm ~/fill")
	if text, err := sb.Files.ReadText(t.Context(), "old", nil); err != nil || text != "old" {
		t.Errorf("the old file is %d bytes, %v, want %q and no error", len(text), err, "old")
	}
	if found, err := sb.Files.Exists(t.Context(), "new", nil); err != nil || found {
		t.Errorf("half a file is left: %v, %v", found, err)
	}
}

func TestWriteFiles(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	var files []sandbox.FileContent
	for i := range 20 {
		files = append(files, sandbox.FileContent{Path: "many/" + string(rune('a'+i)), Content: strings.NewReader("12345")})
	}
	var told []int64
	must.Do(t, sb.Files.WriteFiles(t.Context(), files, &sandbox.FileParams{Progress: func(n int64) { told = append(told, n) }}))
	if infos, err := sb.Files.List(t.Context(), "many", nil); err != nil || len(infos) != 20 {
		t.Errorf("%d files, %v, want 20 and no error", len(infos), err)
	}
	if !slices.IsSorted(told) || told[len(told)-1] != 100 {
		t.Errorf("progress: %v, want rising numbers up to 100", told)
	}
	broken := errors.New("broken")
	err := sb.Files.WriteFiles(t.Context(), []sandbox.FileContent{{Path: "bad", Content: failing{broken}}}, nil)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "bad") {
		t.Errorf("a source that breaks: %v, want %v and an error with %q", err, broken, "bad")
	}
}

func TestFilesAsFS(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	sandboxtest.Run(t, sb, "mkdir -p ~/fs/a/b && cd ~/fs && echo one > one && echo two > a/two && : > a/b/empty && ln -s ../one a/link")
	system := sb.Files.FS(t.Context(), "fs")
	if err := fstest.TestFS(system, "one", "a/two", "a/b/empty", "a/link"); err != nil {
		t.Error(err)
	}
	if data, err := fs.ReadFile(system, "a/link"); err != nil || string(data) != "one\n" {
		t.Errorf("through a link: %q, %v, want %q and no error", data, err, "one\n")
	}
	_, err := fs.Stat(system, "a/none")
	if failed, ok := errors.AsType[*fs.PathError](err); !ok || failed.Path != "a/none" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v, want fs.ErrNotExist for the path %q", err, "a/none")
	}
}

func TestDirectories(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "made")
	when := time.Unix(1_600_000_000, 0)
	for name, mode := range map[string]fs.FileMode{"run": 0o755, "closed/secret": 0o600, "closed/-rf": 0o666, "out": 0o644, "node_modules/x": 0o644} {
		path := filepath.Join(src, name)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(name), mode), os.Chmod(path, mode), os.Chtimes(path, when, when)))
	}
	must.Do(t, errors.Join(os.Symlink("../run", filepath.Join(src, "closed", "link")), os.Chmod(filepath.Join(src, "closed"), 0o500), os.Chtimes(filepath.Join(src, "closed"), when, when)))
	t.Cleanup(func() {
		for _, dir := range []string{src, dst} {
			_ = os.Chmod(filepath.Join(dir, "closed"), 0o700)
		}
	})
	exclude := func(name string, _ fs.DirEntry) bool { return name == "node_modules" }
	dir := "$(touch pwned) it's -here"
	must.Do(t, sb.Files.UploadDir(t.Context(), src, dir, &sandbox.UploadDirParams{Exclude: exclude, Gzip: true}))
	sandboxtest.Run(t, sb, `cd ~/*here && ln -s /etc/passwd away && mkfifo pipe`)
	var skipped []string
	for range 2 { // also over an existing file
		skipped = nil
		must.Do(t, sb.Files.DownloadDir(t.Context(), dir, dst, &sandbox.DownloadDirParams{Skipped: func(name, _ string) { skipped = append(skipped, name) }}))
	}
	slices.Sort(skipped)
	if diff := cmp.Diff([]string{"./away", "./pipe"}, skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	var got []string
	err := fs.WalkDir(os.DirFS(dst), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink == 0 && !info.ModTime().Equal(when) {
			t.Errorf("%s is of %v", name, info.ModTime())
		}
		got = append(got, info.Mode().String()+" "+name)
		return nil
	})
	want := []string{"dr-x------ closed", "-rw-rw-rw- closed/-rf", "Lrwxrwxrwx closed/link", "-rw------- closed/secret", "-rw-r--r-- out", "-rwxr-xr-x run"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if left := sandboxtest.Run(t, sb, `cd && ls -A | grep -e e2bctl -e '^pwned' || true`); left != "" {
		t.Errorf("left behind: %s, want nothing", left)
	}
	for _, p := range []*sandbox.DownloadDirParams{{MaxFiles: 2}, {MaxBytes: 3}} {
		if err := sb.Files.DownloadDir(t.Context(), dir, t.TempDir(), p); !errors.Is(err, sandbox.ErrTooLarge) {
			t.Errorf("%+v: got %v, want sandbox.ErrTooLarge", p, err)
		}
	}
}

// A directory that an upload makes gets its name when it is complete.
func TestUploadOfANewDirectory(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	source := t.TempDir()
	closed := filepath.Join(source, "closed")
	err := errors.Join(os.MkdirAll(closed, 0o755), os.WriteFile(filepath.Join(closed, "file"), []byte("new"), 0o644), os.Chmod(closed, 0o500))
	must.Do(t, err)
	t.Cleanup(func() { _ = os.Chmod(closed, 0o700) })
	// tar does its work, reports the visible files, and continues with the commands of the
	// test.
	install := func(then string) {
		t.Helper()
		script := "#!/bin/sh\n/usr/bin/tar \"$@\" || exit\nls ~/-in/new >/tmp/seen 2>&1; true\n" + then
		must.Do(t, sb.Files.Write(t.Context(), "/usr/local/bin/tar", []byte(script), &sandbox.FileParams{User: "root"}))
		_, err := sb.Commands.Run(t.Context(), "chmod 755 /usr/local/bin/tar", &sandbox.CommandParams{User: "root"})
		must.Do(t, err)
	}
	const list = "cd; ls -AR . | grep -e e2bctl -e new -e ^file -e other; cat ./-in/new/closed/file 2>/dev/null; true"
	for _, test := range []struct{ name, dir, then, want string }{
		{"failed", "-in/new", "exit 2", ""},
		{"whole", "~/-in/new//", "", "new\n./-in/new:\n./-in/new/closed:\nfile\nnew"},
		{"made by somebody else", "-in/new", "[ -e ~/-in/new/other ] || { mkdir ~/-in/new && echo >~/-in/new/other; }", "new\n./-in/new:\nother\n./-in/new/closed:\nfile\nnew"},
		{"there already", "/home/user/-in/new", "", "new\n./-in/new:\n./-in/new/closed:\nfile\nnew"},
	} {
		sandboxtest.Run(t, sb, "chmod -R u+w ~/-in; rm -rf ~/-in")
		if test.name == "there already" {
			sandboxtest.Run(t, sb, "mkdir -p ~/-in/new")
		}
		install(test.then)
		err := sb.Files.UploadDir(t.Context(), source, test.dir, nil)
		if (err != nil) != (test.want == "") {
			t.Errorf("%s: error %v", test.name, err)
		}
		if got := sandboxtest.Run(t, sb, list); got != test.want {
			t.Errorf("%s: there is %q, want %q", test.name, got, test.want)
		}
		if seen := sandboxtest.Run(t, sb, "cat /tmp/seen"); test.name == "whole" && !strings.Contains(seen, "No such file") {
			t.Errorf("%s: when tar had ended there was already %q, want nothing of that name", test.name, seen)
		}
	}
	// A call that is cancelled in the middle leaves nothing behind.
	sandboxtest.Run(t, sb, "chmod -R u+w ~/-in; rm -rf ~/-in")
	install("exec sleep 600")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- sb.Files.UploadDir(ctx, source, "-in/new", nil) }()
	patience.Until(t, "the directory is unpacked", func() bool {
		return sandboxtest.Run(t, sb, "ls -A ~/-in/*/closed 2>/dev/null; ls -d ~/-in/.e2bctl-*/closed 2>/dev/null; true") != ""
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: error %v, want context.Canceled", err)
	}
	patience.Until(t, "nothing is left", func() bool { return sandboxtest.Run(t, sb, list) == "" })
}

func TestSignedURLs(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	path, client := "/home/user/a b+é.txt", clienttest.New(t)
	post := func(to, content string) int {
		t.Helper()
		response, err := client.Post(to, "application/octet-stream", strings.NewReader(content))
		must.Do(t, err)
		defer response.Body.Close()
		return response.StatusCode
	}
	up, err := sb.Files.UploadURL(path, &sandbox.SignedURLParams{Expires: time.Hour})
	must.Do(t, err)
	if status := post(up, "signed"); status != http.StatusOK {
		t.Errorf("upload: %d, want http.StatusOK", status)
	}
	down, err := sb.Files.DownloadURL(path, &sandbox.SignedURLParams{User: "user"})
	must.Do(t, err)
	response, err := client.Get(down)
	must.Do(t, err)
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || string(text) != "signed" {
		t.Errorf("download: %q, %v, want %q and no error", text, err, "signed")
	}
	if status := post(down, "forged"); status == http.StatusOK {
		t.Error("a download URL took an upload")
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	sandboxtest.Run(t, sb, "mkdir -p ~/w")
	w, err := sb.Files.Watch(t.Context(), "w", &sandbox.WatchParams{Recursive: true, IncludeInfo: true})
	must.Do(t, err)
	defer w.Close()
	// A file that exists when its new directory is read is reported; a file that is gone by
	// then is not.
	sandboxtest.Run(t, sb, "cd ~/w && mkdir sub && echo 1 > sub/f")
	seen := map[string]bool{}
	var end error
	for event, err := range w.Events(t.Context()) {
		if end = err; err != nil {
			break
		}
		what := string(event.Type) + " " + event.Name
		if what == "create sub/f" && !seen[what] {
			sandboxtest.Run(t, sb, "cd ~/w && mv sub/f g && rm -r sub g && cd .. && rmdir w")
		}
		seen[what] = true
	}
	if !errors.Is(end, sandbox.ErrWatchRemoved) {
		t.Errorf("the end: %v, want sandbox.ErrWatchRemoved", end)
	}
	for _, want := range []string{"create sub", "create sub/f", "create g", "remove g", "remove sub"} {
		if !seen[want] {
			t.Errorf("no %q in %v", want, seen)
		}
	}
	for _, err := range w.Events(t.Context()) { // the end is kept
		if !errors.Is(err, sandbox.ErrWatchRemoved) {
			t.Errorf("again: %v, want sandbox.ErrWatchRemoved", err)
		}
	}
}
