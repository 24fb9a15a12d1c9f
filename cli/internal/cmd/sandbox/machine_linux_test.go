package sandbox

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/cloud/envd/envdtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// machine is a sandbox that has directories of this machine: the homes of its users user and me are the directories USER and ME.
// HERE is a directory of the user of the commands.
type machine struct {
	t     *testing.T
	url   string
	names []string // each name, and the directory
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, names: []string{"HERE", t.TempDir(), "USER", t.TempDir(), "ME", t.TempDir()}}
	m.url = envdtest.Serve(t, envdtest.Start(t, "", envdtest.User{Name: "user", Home: m.names[3]}, envdtest.User{Name: "me", Home: m.names[5]}).ServeHTTP)
	t.Setenv("E2B_API_KEY", "e2b_00")
	t.Setenv("E2B_SANDBOX_URL", m.url)
	return m
}

// path returns a path in which a directory has its name.
func (m *machine) path(path string) string { return strings.NewReplacer(m.names...).Replace(path) }

// write makes files, each behind its path.
func (m *machine) write(files ...string) {
	m.t.Helper()
	for i := 0; i < len(files); i += 2 {
		path := m.path(files[i])
		must.Do(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(m.t, os.WriteFile(path, []byte(files[i+1]), 0o600))
	}
}

// files returns the files below a directory with their content, as in "a=text b/c=text".
func (m *machine) files(dir string) string {
	m.t.Helper()
	var all []string
	dir = m.path(dir)
	must.Do(m.t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !entry.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		all = append(all, strings.TrimPrefix(path, dir+"/")+"="+string(text))
		return err
	}))
	return strings.Join(all, " ")
}

// sending is a command line that transfers files, with its output.
type sending struct {
	line string // its words have no blanks
	in   string // standard input
	out  string
	errs string
	err  string // a part of the error; "": there is none
	// a directory, and the files that are in it afterwards; "": it is not checked
	dir, files string
	terminal   bool // standard input is a terminal
}

// run runs the command line. One with --watch is interrupted when it has written its first change. It must leave no connection.
func (m *machine) run(want sending) {
	m.t.Helper()
	before := goleak.IgnoreCurrent()
	var out, errs cmdtest.Output
	ctx, interrupt := context.WithCancelCause(patience.Context(m.t))
	defer interrupt(nil)
	if strings.Contains(want.line, "--watch") {
		out.Seen = func() { interrupt(errors.New("interrupted")) }
	}
	ios := cmdutil.NewIOStreams(strings.NewReader(want.in), &out, &errs)
	ios.InIsTerminal, ios.InIsData = want.terminal, !want.terminal
	commands := func(f *cmdutil.Factory) []*cobra.Command {
		return []*cobra.Command{NewCmdCopy(f), NewCmdSync(f), NewCmdExec(f)}
	}
	err := cmdtest.ExecuteContext(ctx, ios, commands, append([]string{"--api-url", m.url, "--no-env-file"}, strings.Fields(m.path(want.line))...)...)
	if (err != nil) != (want.err != "") || err != nil && !strings.Contains(err.Error(), m.path(want.err)) {
		m.t.Errorf("%s: got error %v, want %q", want.line, err, want.err)
	}
	got := sending{line: want.line, in: want.in, out: out.String(), errs: errs.String(), err: want.err, dir: want.dir, terminal: want.terminal}
	if want.dir != "" {
		got.files = m.files(want.dir)
	}
	want.out, want.errs = m.path(want.out), m.path(want.errs)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sending{})); diff != "" {
		m.t.Errorf("%s (-want +got):\n%s", want.line, diff)
	}
	if leaks := goleak.Find(before); leaks != nil {
		m.t.Errorf("%s: something stays: %v", want.line, leaks)
	}
}

// TestSync checks what a sync sends and prints with each of its flags, in both directions.
func TestSync(t *testing.T) {
	m := newMachine(t)
	m.write("HERE/a/1", "one", "HERE/a/d/2", "two", "HERE/a/x.log", "log")
	must.Do(t, syscall.Mkfifo(m.path("HERE/a/pipe"), 0o600))
	const skipped = "skipped pipe: it is neither a file, a directory nor a link\n"
	const all = "1=one d/2=two x.log=log"
	for _, tt := range []sending{
		{line: "sync HERE/a i1:dry -n", out: "create  1\ncreate  d\ncreate  d/2\ncreate  x.log\n", errs: skipped, dir: "USER", files: ""},
		{line: "sync HERE/a i1:app", out: "create  1\ncreate  d\ncreate  d/2\ncreate  x.log\n", errs: skipped, dir: "USER/app", files: all},
		{line: "sync HERE/a i1:app", errs: skipped, dir: "USER/app", files: all},
		{line: "sync HERE/a i1:app -o json", out: "[]\n", errs: skipped},
		{line: "sync HERE/a i1:app -u me -q --exclude *.log --exclude d", out: "1\n", errs: skipped, dir: "ME/app", files: "1=one"},
		{line: "sync HERE/a i1:app -u me -o json --exclude *.log --exclude 1", errs: skipped, dir: "ME/app", files: "1=one d/2=two", out: "[\n  {\n    \"type\": \"create\"," +
			"\n    \"name\": \"d\",\n    \"size\": 0\n  },\n  {\n    \"type\": \"create\",\n    \"name\": \"d/2\",\n    \"size\": 3\n  }\n]\n"},
		{line: "sync --pull i1:app HERE/b", out: "create  1\ncreate  d\ncreate  d/2\ncreate  x.log\n", dir: "HERE/b", files: all},
		{line: "sync --pull HERE/c i1:app -u me --delete", out: "create  1\ncreate  d\ncreate  d/2\n", dir: "HERE/c", files: "1=one d/2=two"},
		{line: "sync --pull HERE/b i1:app -u me", dir: "HERE/b", files: all},
		{line: "sync --pull HERE/b i1:app -u me --delete", out: "remove  x.log\n", dir: "HERE/b", files: "1=one d/2=two"},
		{line: "sync --pull i1:app HERE/few --max-files 3", err: "more than 3 files", dir: "HERE/few"},
		{line: "sync --pull i1:app HERE/few --max-files 4 --max-download 8", err: "the download is too large", dir: "HERE/few"},
		{line: "sync --pull i1:app HERE/few --max-files 4 --max-download 9", out: "create  1\ncreate  d\ncreate  d/2\ncreate  x.log\n", dir: "HERE/few", files: all},
		{line: "sync --watch HERE/c/d i1:w", out: "create  2\n", errs: "watching HERE/c/d\n", err: "interrupted", dir: "USER/w", files: "2=two"},
		{line: "sync --watch HERE/c/d i1:v -q", out: "2\n", err: "interrupted", dir: "USER/v", files: "2=two"},
		{line: "sync --watch --pull i1:app/d HERE/w -o json", out: `{"type":"create","name":"2","size":3}` + "\n", errs: "watching i1:app/d\n", err: "interrupted", dir: "HERE/w", files: "2=two"},
	} {
		m.run(tt)
	}
}

// TestCopies checks what is copied with each of the flags, between all kinds of places, and that several sources go into a
// directory.
func TestCopies(t *testing.T) {
	m := newMachine(t)
	m.write("HERE/a/1", "one", "HERE/a/d/2", "two", "HERE/3", "three", "ME/4", "four")
	packed := func(name, text string) string {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		must.Do(t, w.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: 0o600}))
		_, err := io.WriteString(w, text)
		must.Do(t, errors.Join(err, w.Close()))
		return archive.String()
	}
	for _, tt := range []sending{
		{line: "cp -r HERE/a i1:b", dir: "USER/b", files: "1=one d/2=two"},
		{line: "cp HERE/3 HERE/a/1 i1:many", dir: "USER/many", files: "1=one 3=three"},
		{line: "cp -r i1:b i1:c", dir: "USER/c", files: "1=one d/2=two"},
		{line: "cp i1:4 i2:5 -u me", dir: "ME", files: "4=four 5=four"},
		{line: "cp -r i1:b i1:c/d/2 HERE/in", dir: "HERE/in", files: "2=two b/1=one b/d/2=two"},
		{line: "cp i1:b/1 i1:none i1:c/d/2 HERE/part", err: "i1:none: ", dir: "HERE/part", files: "1=one"},
		{line: "cp HERE/none i1:x", err: "stat HERE/none: no such file", dir: "USER/x"},
		{line: "cp HERE/3 i1:-", dir: "USER", files: "-=three b/1=one b/d/2=two c/1=one c/d/2=two many/1=one many/3=three"},
		{line: "cp i1:- HERE/a", dir: "HERE/a", files: "-=three 1=one d/2=two"},
		{line: "cp - i1:t", in: packed("6", "six"), dir: "USER/t", files: "6=six"},
		{line: "cp - i1:t -u me", in: packed("7", "seven"), dir: "ME/t", files: "7=seven"},
		{line: "cp - i1:t", in: "no archive", err: "t", dir: "USER/t", files: "6=six"},
		{line: "cp -r i1:b HERE/few --max-files 3", err: "more than 3 files"},
		{line: "cp -r i1:b HERE/small --max-download 1", err: "the download is too large"},
		{line: "cp -r i1:b HERE/all --max-files 4 --max-download 9KiB", dir: "HERE/all", files: "1=one d/2=two"},
	} {
		m.run(tt)
	}
	for line, want := range map[string]string{"cp i1:t -": "t/6=six", "cp i1:t - -u me": "t/7=seven"} {
		var out bytes.Buffer
		commands := func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdCopy(f)} }
		must.Do(t, cmdtest.Execute(t, cmdutil.NewIOStreams(nil, &out, io.Discard), commands, append([]string{"--api-url", m.url, "--no-env-file"}, strings.Fields(line)...)...))
		got, archive := "", tar.NewReader(&out)
		for header, err := archive.Next(); err == nil; header, err = archive.Next() {
			if header.Typeflag == tar.TypeReg {
				text, err := io.ReadAll(archive)
				must.Do(t, err)
				got += header.Name + "=" + string(text)
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

// TestInputOfCommands checks which commands get standard input, and the message about a shell that has none.
func TestInputOfCommands(t *testing.T) {
	m := newMachine(t)
	for _, tt := range []sending{
		{line: "exec i1 cat", in: "x", out: "x"}, {line: "exec -n i1 cat", in: "x"}, {line: "exec -i i1 cat", in: "x", out: "x", terminal: true},
		{line: "exec i1 cat", in: "x", terminal: true}, {line: "exec -w / -u me -e A=pwd i1 pwd;$A>&2", out: "/\n", errs: "/\n"},
		{line: "exec -n i1 sh", in: "exit"},
		{line: "exec i1 sh", in: "exit", terminal: true, errs: "e2bctl: exec: sh has no input here; a session in this terminal is e2bctl exec -it <id> sh\n"},
	} {
		m.run(tt)
	}
}

// TestSignedAddresses checks the time until which a signed address is valid.
func TestSignedAddresses(t *testing.T) {
	m := newMachine(t)
	for args, want := range map[string]time.Duration{"": 0, " --expires 1h": time.Hour, " --upload --expires 90s": 90 * time.Second} {
		var out bytes.Buffer
		commands := func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdURL(f)} }
		line := append([]string{"--api-url", m.url, "--no-env-file", "url", "--signed", "i1:a"}, strings.Fields(args)...)
		must.Do(t, cmdtest.Execute(t, cmdutil.NewIOStreams(nil, &out, io.Discard), commands, line...))
		at, err := url.Parse(strings.TrimSpace(out.String()))
		must.Do(t, err)
		expires, _ := strconv.ParseInt(at.Query().Get("signature_expiration"), 10, 64)
		if want == 0 {
			if expires != 0 {
				t.Errorf("got %s, want an address without an end", at)
			}
			continue
		}
		if left := time.Until(time.Unix(expires, 0)); left > want+time.Second || left < want-time.Minute {
			t.Errorf("%q: got %s, which is valid for %v, want %v", args, at, left, want)
		}
	}
}

// TestOpenedAddresses checks that a browser gets the address that is printed on a terminal, and no other time.
func TestOpenedAddresses(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"sandboxID":"i1","templateID":"t","state":"running","envdVersion":"0.6.13"}`)
	}))
	defer server.Close()
	t.Setenv("E2B_API_KEY", "e2b_00")
	programs := t.TempDir()
	opened := filepath.Join(programs, "opened")
	const noted = "Browsers and curl resolve names below localhost; plain Python and Node do not: e2bctl port-forward i1 3000 is for them.\n"
	for _, tt := range []struct {
		line     string
		terminal bool
		exits    string // the status of the browser; "": there is none
		out      string
		errs     string
		err      string // its beginning
		opened   string
	}{
		{"open i1 3000", true, "0", "https://3000-i1.e2b.app\n", "", "", "https://3000-i1.e2b.app\n"},
		{"open i1 3000 --path x?y", true, "0", "https://3000-i1.e2b.app/x?y\n", "", "", "https://3000-i1.e2b.app/x?y\n"},
		{"open i1 3000 -o json", true, "0", "{\n  \"url\": \"https://3000-i1.e2b.app\"\n}\n", "", "", "https://3000-i1.e2b.app\n"},
		{"open i1 3000", false, "0", "https://3000-i1.e2b.app\n", "", "", ""},
		{"url i1 3000", true, "0", "https://3000-i1.e2b.app\n", "", "", ""},
		{"open i1 3000", true, "3", "https://3000-i1.e2b.app\n", "", "open https://3000-i1.e2b.app in the browser of this machine: exit status 3", "https://3000-i1.e2b.app\n"},
		{"open i1 3000", true, "", "https://3000-i1.e2b.app\n", "", "open https://3000-i1.e2b.app in the browser of this machine: exec: ", ""},
		{"--domain localhost url i1 3000", false, "", "https://3000-i1.localhost\n", noted, "", ""},
		{"--domain localhost url i1 3000 -q", false, "", "https://3000-i1.localhost\n", "", "", ""},
		{"--domain localhost.test url i1 3000", false, "", "https://3000-i1.localhost.test\n", "", "", ""},
	} {
		t.Setenv("PATH", programs)
		_ = os.Remove(opened)
		_ = os.Remove(filepath.Join(programs, "xdg-open"))
		if tt.exits != "" {
			must.Do(t, os.WriteFile(filepath.Join(programs, "xdg-open"), []byte("#!/bin/sh\necho \"$@\" >"+opened+"\nexit "+tt.exits+"\n"), 0o700))
		}
		var out, errs bytes.Buffer
		ios := cmdutil.NewIOStreams(nil, &out, &errs)
		ios.OutIsTerminal = tt.terminal
		commands := func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdOpen(f), NewCmdURL(f)} }
		err := cmdtest.Execute(t, ios, commands, append([]string{"--api-url", server.URL, "--no-env-file"}, strings.Fields(tt.line)...)...)
		got, _ := os.ReadFile(opened)
		if out.String() != tt.out || errs.String() != tt.errs || string(got) != tt.opened {
			t.Errorf("%s: got %q and %q, and opened %q, want %q, %q and %q", tt.line, &out, &errs, got, tt.out, tt.errs, tt.opened)
		}
		if (err != nil) != (tt.err != "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
			t.Errorf("%s: got error %v, want %q", tt.line, err, tt.err)
		}
	}
}
