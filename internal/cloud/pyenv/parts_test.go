package pyenv

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestLevels checks the names of the levels.
func TestLevels(t *testing.T) {
	t.Parallel()
	for level, want := range map[Level]string{Venv: "venv", IPython: "ipython", Plain: "plain", Absent: "none", Level(7): "Level(7)"} {
		if got := level.String(); got != want {
			t.Errorf("%d: got %q, want %q", int(level), got, want)
		}
	}
}

// TestPreferences checks which of two versions of Python is preferred.
func TestPreferences(t *testing.T) {
	t.Parallel()
	order := [][3]int{{3, best + 2, 0}, {3, best + 1, 5}, {3, 9, 0}, {3, 9, 10}, {3, best - 1, 9}, {3, best, 0}, {3, best, 1}}
	for i, a := range order {
		for j, b := range order {
			if got := (&interpreter{Numbers: a}).isPreferredTo(&interpreter{Numbers: b}); got != (i > j) {
				t.Errorf("%v is preferred to %v: %v, want %v", a, b, got, i > j)
			}
		}
	}
	for numbers, fits := range map[[3]int]bool{{3, oldest, 0}: true, {3, oldest - 1, 20}: false, {2, 7, 18}: false, {4, oldest, 0}: false, {3, 99, 0}: true} {
		i := &interpreter{Executable: "/usr/bin/python3", Real: "/usr/bin/python3", Numbers: numbers}
		if err := i.check(); (err == nil) != fits {
			t.Errorf("%s: got error %v, want it to be usable: %v", i.version(), err, fits)
		}
	}
	if err := (&interpreter{Executable: "python3", Numbers: [3]int{3, best, 0}}).check(); err == nil {
		t.Error("an interpreter that does not know its file is usable")
	}
	for path, want := range map[string]bool{"/a": true, "/a/b": true, "/ab": false, "/": false, "/b/a": false} {
		if got := below(path, "/a"); got != want || !below(path, "/") {
			t.Errorf("%s is below /a: %v, want %v", path, got, want)
		}
	}
}

// TestMostUseful checks which interpreter is chosen without an environment, and every field of the description.
func TestMostUseful(t *testing.T) {
	t.Parallel()
	var all []string
	for _, module := range modules {
		all = append(all, module.name)
	}
	plain := &interpreter{Executable: "/opt/a/bin/python3", Real: "/opt/a/bin/python3", Prefixes: []string{"/opt/a"}, Numbers: [3]int{3, 11, 2}}
	some := &interpreter{Executable: "/usr/bin/python3", Numbers: [3]int{3, 12, 0}, Prefixes: []string{"/usr"}, Modules: []string{"numpy", "IPython"}, Real: "/usr/bin/python3"}
	whole := &interpreter{Executable: "/usr/local/bin/python3", Numbers: [3]int{3, 13, 1}, Modules: all, Real: "/usr/local/bin/python3"}
	for name, tt := range map[string]struct {
		found []*interpreter
		want  *Env
	}{
		"one without packages": {[]*interpreter{plain}, &Env{
			Python: "/opt/a/bin/python3", Version: "3.11.2", Trees: []string{"/opt/a"}, Level: Plain,
			Note: "/opt/a/bin/python3 (Python 3.11.2) lacks IPython, numpy, pandas, matplotlib, pillow, requests, jinja2, nbformat, nest-asyncio: do it",
		}},
		"the first with IPython": {[]*interpreter{plain, some, whole}, &Env{
			Python: "/usr/bin/python3", Version: "3.12.0", Level: IPython,
			Note: "/usr/bin/python3 (Python 3.12.0) lacks pandas, matplotlib, pillow, requests, jinja2, nbformat, nest-asyncio: do it",
		}},
		"one with all": {[]*interpreter{whole, plain}, &Env{Python: "/usr/local/bin/python3", Version: "3.13.1", Level: IPython}},
		"none":         {nil, nil},
	} {
		got, err := mostUseful(tt.found, "do it")
		if diff := cmp.Diff(tt.want, got); diff != "" || errors.Is(err, ErrNoPython) != (tt.want == nil) {
			t.Errorf("%s: error %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestChoices checks how a choice of packages is recorded, and the command that prepares it.
func TestChoices(t *testing.T) {
	cache := t.TempDir()
	for _, variable := range []string{"XDG_CACHE_HOME", "HOME", "LocalAppData"} {
		t.Setenv(variable, cache)
	}
	directory, err := cacheDirectory()
	must.Do(t, err)
	if c, err := readChoice(); c != (choice{}) || err != nil {
		t.Errorf("without a cache: got %+v and error %v", c, err)
	}
	must.Do(t, os.MkdirAll(directory, 0o700))
	list := filepath.Join(cache, "list.txt")
	must.Do(t, os.WriteFile(list, []byte("a\n"), 0o600))
	t.Chdir(cache)
	withFile, err := newChoice(Packages{File: "list.txt"})
	if err != nil || withFile.File != list || withFile.Digest != digest("a\n") {
		t.Errorf("got %+v and error %v", withFile, err)
	}
	digests := map[string]bool{}
	for _, c := range []choice{{Packages: Packages{Full: true}}, withFile, {Packages: Packages{Full: true, File: "b"}, Digest: "x"}, {}, {}} {
		for range 2 { // a choice that is recorded already
			must.Do(t, c.write())
		}
		if got, err := readChoice(); got != c || err != nil {
			t.Errorf("got %+v and error %v, want %+v", got, err, c)
		}
		entries, err := os.ReadDir(directory)
		if want := map[bool]int{true: 0, false: 1}[c == (choice{})]; err != nil || len(entries) != want {
			t.Errorf("%+v: got %v and error %v, want %d files", c, entries, err, want)
		}
		want := "run `e2bctl local setup"
		if c.Full {
			want += " --full"
		}
		if c.File != "" {
			want += " --packages " + c.File
		}
		if got := c.remedy(); got != want+"`" {
			t.Errorf("got %s, want %s", got, want)
		}
		digests[c.digest()] = true
	}
	if len(digests) != 4 {
		t.Errorf("got %d digests of 4 choices", len(digests))
	}
	must.Do(t, os.WriteFile(filepath.Join(directory, chosen), []byte("{"), 0o600))
	must.Do(t, (choice{}).write()) // it replaces one that cannot be read
	if exists(filepath.Join(directory, chosen)) {
		t.Error("the default choice leaves a file")
	}
	must.Do(t, (choice{Packages: Packages{Full: true}}).write())
	must.Do(t, os.Mkdir(filepath.Join(directory, chosen+".new"), 0o700))
	must.Do(t, (choice{Packages: Packages{Full: true}}).write()) // there is nothing to write
	if err := withFile.write(); err == nil || !strings.Contains(err.Error(), "python: record which packages were chosen: ") {
		t.Errorf("a choice that cannot be written: got error %v", err)
	}
	must.Do(t, os.RemoveAll(filepath.Join(directory, chosen)))
	must.Do(t, os.MkdirAll(filepath.Join(directory, chosen, "below"), 0o700))
	if err := (choice{Packages: Packages{Full: true}}).write(); err == nil {
		t.Error("a choice in the place of a directory was written")
	}
}

// TestKernelsOfAnEnvironment checks the descriptions of an environment's kernels, and which kernels of the user are
// copied.
func TestKernelsOfAnEnvironment(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths are those of Unix")
	}
	for full, want := range map[bool]map[string]string{
		false: {"bash": `{"argv":["DIR/bin/python3","-m","bash_kernel","-f","{connection_file}"],"display_name":"Bash","language":"bash","env":{"PS1":"$"}}`},
		true: {
			"bash": `{"argv":["DIR/bin/python3","-m","bash_kernel","-f","{connection_file}"],"display_name":"Bash","language":"bash","env":{"PS1":"$"}}`,
			"deno": `{"argv":["DIR/bin/deno","jupyter","--kernel","--conn","{connection_file}"],"display_name":"Deno","language":"typescript"}`,
		},
	} {
		dir := t.TempDir()
		must.Do(t, WriteKernelspecs(dir, full))
		if diff := cmp.Diff(want, kernelsIn(t, dir)); diff != "" {
			t.Errorf("full %v (-want +got):\n%s", full, diff)
		}
	}
	blocked := t.TempDir()
	writeFiles(t, blocked, map[string]string{"share/jupyter/kernels/bash/kernel.json/x": ""})
	if err := WriteKernelspecs(blocked, false); err == nil || !strings.Contains(err.Error(), "python: describe the kernel bash: ") {
		t.Errorf("a description that cannot be written: got error %v", err)
	}
	file := t.TempDir()
	writeFiles(t, file, map[string]string{"share": ""})
	if err := WriteKernelspecs(file, false); err == nil || !strings.Contains(err.Error(), "python: make the directory of the kernel bash: ") {
		t.Errorf("a directory that cannot be made: got error %v", err)
	}

	first, second, home, dir := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("JUPYTER_PATH", first+":relative")
	t.Setenv("JUPYTER_DATA_DIR", second)
	t.Setenv("HOME", home)
	if diff := cmp.Diff([]string{first + "/kernels", second + "/kernels", home + "/.local/share/jupyter/kernels"}, userKernelspecs()); diff != "" {
		t.Errorf("directories (-want +got):\n%s", diff)
	}
	writeFiles(t, first, map[string]string{"kernels/ir/kernel.json": `{"a":"` + first + `/kernels/ir/x"}`, "kernels/ir/deep/file": first + "/kernels/ir/", "kernels/other/kernel.json": "{}", "kernels/r/none": ""})
	must.Do(t, os.Symlink("file", filepath.Join(first, "kernels/ir/deep/link")))
	must.Is(t, copyKernelspec(filepath.Join(first, "none"), dir), fs.ErrNotExist)
	writeFiles(t, second, map[string]string{"kernels/ir/kernel.json": `"second"`, "kernels/java/kernel.json": `"java"`})
	writeFiles(t, dir, map[string]string{"share/jupyter/kernels/ir/old": ""})
	names, err := copyKernelspecs(dir)
	want := map[string]string{"ir": `{"a":"DIR/share/jupyter/kernels/ir/x"}`, "java": `"java"`}
	if diff := cmp.Diff(want, kernelsIn(t, dir)); diff != "" || err != nil || !slices.Equal(names, []string{"ir", "java"}) {
		t.Errorf("got %v and error %v (-want +got):\n%s", names, err, diff)
	}
	ir := filepath.Join(kernelspecs(dir), "ir")
	if text, err := os.ReadFile(filepath.Join(ir, "deep/file")); err != nil || string(text) != first+"/kernels/ir/" {
		t.Errorf("another file: got %s and error %v, want it as it was", text, err)
	}
	for _, gone := range []string{"old", "deep/link"} {
		if _, err := os.Lstat(filepath.Join(ir, gone)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got error %v, want none of it", gone, err)
		}
	}
	writeFiles(t, home, map[string]string{".local/share/jupyter/kernels/r/kernel.json": "{"})
	if names, err := copyKernelspecs(dir); !slices.Equal(names, []string{"ir", "java"}) || err == nil || !strings.Contains(err.Error(), "kernel.json is not JSON") {
		t.Errorf("a broken kernel: got %v and error %v", names, err)
	}
}

// kernelsIn returns the descriptions of the kernels in an environment, with DIR for its path and without spaces.
func kernelsIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(kernelspecs(dir), "*", "kernel.json"))
	must.Do(t, err)
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Do(t, err)
		all[filepath.Base(filepath.Dir(file))] = strings.NewReplacer(dir, "DIR", "\n", "", " ", "").Replace(string(text))
	}
	return all
}

// TestReports checks what is written of a setup, to a terminal and elsewhere.
func TestReports(t *testing.T) {
	t.Parallel()
	bar := func(filled int, rest string) string {
		return "\r[" + strings.Repeat("#", filled) + strings.Repeat(".", barWidth-filled) + "] " + rest
	}
	label := func(text string) string { return fmt.Sprintf("%-30.30s", text) }
	for terminal, want := range map[bool]string{
		false: "begin 1\nlooking\nfetching 3 packages\n1 of them were fetched before\nfetched 2 of 3 packages\nend\n",
		true: "begin 1\nlooking\nfetching 3 packages\n1 of them were fetched before\n" + bar(20, "2/3 "+label("numpy")) + bar(30, "3/3 "+label(strings.Repeat("p", 40))) +
			bar(30, "3/3 "+label("one too many")) + "\nfetched 5 of 3 packages\nend\n",
	} {
		var said strings.Builder
		r := newReporter(&said)
		r.terminal = terminal
		r.line("begin %d", 1)
		r.step("before a stage")
		r.stage("looking", 0)
		r.step("in a stage of unknown length")
		r.stage("fetching", 3)
		r.passed(1)
		for _, name := range []string{"numpy", strings.Repeat("p", 40), "one too many"} {
			r.step(name)
		}
		if terminal {
			r.did("fetched", 2)
		} else {
			r.did("fetched", 1)
		}
		r.line("end")
		if diff := cmp.Diff(want, said.String()); diff != "" {
			t.Errorf("terminal %v (-want +got):\n%s", terminal, diff)
		}
	}
	newReporter(nil).line("nobody reads this")
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must.Do(t, err)
	if newReporter(file).terminal {
		t.Error("a file counts as a terminal")
	}
	must.Do(t, file.Close())
	w := lineWriter{}
	if n, err := w.Write([]byte("text\n")); n != 5 || err != nil || len(w.part) != 0 {
		t.Errorf("without a function: got %d, %v and %q", n, err, w.part)
	}
}

// TestTailsOfOutput checks how much of a program's output is kept.
func TestTailsOfOutput(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{tailSize - 1: tailSize - 1, tailSize: tailSize, tailSize + 1: 0} {
		for _, parts := range []int{1, 7} {
			var kept tail
			for text := strings.Repeat("x", size); len(text) > 0; {
				n := min(len(text), size/parts+1)
				if written, err := kept.Write([]byte(text[:n])); written != n || err != nil {
					t.Fatalf("got %d, %v, want %d", written, err, n)
				}
				text = text[n:]
			}
			if got := len(strings.TrimPrefix(kept.suffix(), ": ")); got != want {
				t.Errorf("one line of %d bytes in %d parts: got %d bytes, want %d", size, parts, got, want)
			}
		}
	}
	for text, want := range map[string]string{"": "", "\n\r\n": "", "a\nb\r\nc": ": a; b; c", "bad\xff": ": bad?"} {
		var kept tail
		_, _ = kept.Write([]byte(text)) // it never fails
		if got := kept.suffix(); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestFetchedFiles checks which files of an earlier run are kept, and the files of a pin.
func TestFetchedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hash := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	writeFiles(t, dir, map[string]string{"a": "a", "deep/b": "b", "half": "not whole", "deep/other": "other"})
	pins := []string{"a==1 \\\n    --hash=sha256:" + hash("a") + " \\\n    --hash=sha256:" + hash("x") + "\n", "b==1 \\\n    --hash=sha256:" + hash("b") + "\n", "c==1\n"}
	if diff := cmp.Diff([]string{hash("a"), hash("x")}, hashes(pins[0])); diff != "" || hashes(pins[2]) != nil {
		t.Errorf("hashes (-want +got):\n%s", diff)
	}
	there, err := keepListed(dir, pins)
	if diff := cmp.Diff(map[string]bool{hash("a"): true, hash("b"): true}, there); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	for name, kept := range map[string]bool{"a": true, "deep/b": true, "half": false, "deep/other": false} {
		if exists(filepath.Join(dir, name)) != kept {
			t.Errorf("%s is there: %v, want %v", name, !kept, kept)
		}
	}
	for _, missing := range []string{filepath.Join(dir, "none"), ""} {
		if there, err := keepListed(missing, pins); !errors.Is(err, fs.ErrNotExist) || len(there) > 0 {
			t.Errorf("%q: got %v and error %v, want %v", missing, there, err, fs.ErrNotExist)
		}
	}
	must.Do(t, os.Symlink("none", filepath.Join(dir, "link")))
	if _, err := keepListed(dir, pins); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link to nothing: got error %v, want %v", err, fs.ErrNotExist)
	}
	if _, err := os.Lstat(filepath.Join(dir, "link")); err != nil {
		t.Errorf("a file that cannot be read was removed: %v", err)
	}
	if open := fdtest.Open(t, dir); len(open) > 0 {
		t.Errorf("%q are still open, want none", open)
	}
	if got, err := hashOf(dir); got != "" || err == nil {
		t.Errorf("a directory: got %s and error %v", got, err)
	}
}

// TestUnreadIndex checks which lines of pip's log are the reason of a failure.
func TestUnreadIndex(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "pip.log")
	must.Do(t, unreadIndex(log))
	const missing, broken = "Could not fetch URL http://a/x/: 404 Client Error - skipping\n", "2026 Could not fetch URL http://u:p@b/x/: no route to http://u:p@b - skipping\n"
	for text, want := range map[string]string{
		"": "", missing: "", missing + broken + "more": "cannot read the package index: http://b/x/: no route to http://b; check", "Could not fetch URL http://b/x/: it goes on\n": "",
	} {
		must.Do(t, os.WriteFile(log, []byte(text), 0o600))
		if err := unreadIndex(log); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", text, err, want)
		}
	}
}

// TestPins checks which packages of a list are for a version of Python, and the names of environments.
func TestPins(t *testing.T) {
	t.Parallel()
	const a, b, c = "a==1 \\\n    --hash=sha256:1\n", "b.c_d-e==2.0 ; python_version >= \"3.10\" \\\n    --hash=sha256:2 \\\n    --hash=sha256:3\n", "c==3 ; python_version == \"3.9\" \\\n    --hash=sha256:4\n"
	l := list("# Python 3.9 to 3.14; a list\n# why\n" + a + b + c)
	if first, last := l.minors(); first != 9 || last != 14 {
		t.Errorf("got the versions %d to %d", first, last)
	}
	for minor, want := range map[int][]string{9: {a, c}, 10: {a, b}, 14: {a, b}} {
		if diff := cmp.Diff(want, l.pins(minor)); diff != "" {
			t.Errorf("3.%d (-want +got):\n%s", minor, diff)
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a list that does not say what it covers was taken")
			}
		}()
		list("a==1\n").minors()
	}()
	base := &interpreter{Base: "/usr/bin/python3", Numbers: [3]int{3, 12, 1}}
	name := venvName(choice{}, base)
	if !venvForm().MatchString(name) || !strings.HasPrefix(name, (choice{}).digest()+"-3.12-") {
		t.Errorf("got %s", name)
	}
	for what, other := range map[string]string{
		"packages": venvName(choice{Digest: "x"}, base), "another file": venvName(choice{}, &interpreter{Base: "/opt/python3", Numbers: base.Numbers}),
		"another version": venvName(choice{}, &interpreter{Base: base.Base, Numbers: [3]int{3, 12, 2}}),
	} {
		if other == name {
			t.Errorf("%s: the environment has the name of another", what)
		}
	}
}

// TestCopiesOfLists checks the copies of requirements files, with the files that they include, and that their lines
// have the same numbers.
func TestCopiesOfLists(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the paths are those of Unix")
	}
	dir, copies := t.TempDir(), t.TempDir()
	writeFiles(t, dir, map[string]string{
		"a.txt":      "one\\\n# comment \\\ntwo\\\n --hash=x\n\n# all\n-r sub/b.txt\n-r a.txt\nlast \\\n",
		"sub/b.txt":  "-c ../a.txt\r\nthree # why\r\n-r none.txt",
		"empty.txt":  "",
		"single.txt": "a",
	})
	r := newRequirementFiles(copies)
	first, err := r.copy(dir + "/a.txt")
	must.Do(t, err)
	again, err := r.copy(dir + "/a.txt")
	if err != nil || again != first || len(r.copies) != 2 {
		t.Errorf("got the copies %v, %s and error %v, want one of each file", r.copies, again, err)
	}
	second := r.copies[dir+"/sub/b.txt"]
	for name, want := range map[string]string{
		first: "one\n\ntwo --hash=x\n\n\n\n-r " + second + "\n-r " + first + "\nlast \n", second: "-c " + first + "\nthree\n-r " + dir + "/sub/none.txt\n\n",
	} {
		text, err := os.ReadFile(name)
		if diff := cmp.Diff(want, string(text)); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", name, err, diff)
		}
	}
	failed := &renamedError{fmt.Errorf("in %s and %s: %w", first, second, fs.ErrInvalid), r.originals()}
	if got, want := failed.Error(), fmt.Sprintf("in %s/a.txt and %s/sub/b.txt: %v", dir, dir, fs.ErrInvalid); got != want || !errors.Is(failed, fs.ErrInvalid) {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, err := r.copy(dir + "/none"); got != "" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: got %s and error %v", got, err)
	}
	if got, err := newRequirementFiles(copies + "/none").copy(dir + "/single.txt"); got != "" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a copy that cannot be written: got %s and error %v", got, err)
	}
	for text, want := range map[string]bool{"a": false, "./a": true, ".": true, "a/b": true, "a.b": false} {
		if got := looksLikePath(text); got != want {
			t.Errorf("%s looks like a path: %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]bool{"#": true, " \t# a": true, "a # b": false, "": false} {
		if got := isComment(text); got != want {
			t.Errorf("%q is a comment: %v, want %v", text, got, want)
		}
	}
}

// TestLockIsWaitedFor checks that a wait for another process ends with its context, and does not keep the lock later.
func TestLockIsWaitedFor(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "lock")
	first, err := acquire(t.Context(), name, newReporter(nil))
	must.Do(t, err)
	said := make(chan string, 100)
	cause := errors.New("the user has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := acquire(ctx, name, newReporter(writer(func(text string) { said <- text })))
		failed <- err
	}()
	if got := patience.Receive(t, "the report", said); !strings.Contains(got, "another process is making the Python environment") {
		t.Errorf("got the report %q", got)
	}
	cancel(cause)
	if err := patience.Receive(t, "the end of the wait", failed); !errors.Is(err, cause) || !strings.Contains(err.Error(), "(lock "+name+")") {
		t.Errorf("got error %v, want %v", err, cause)
	}
	must.Do(t, first.Close())
	next, err := acquire(patience.Context(t), name, newReporter(nil))
	must.Do(t, err)
	must.Do(t, next.Close())
	patience.Until(t, "the wait that was given up releases the lock", func() bool { return len(fdtest.Open(t, name)) == 0 })
	if _, err := acquire(t.Context(), filepath.Join(name, "below"), newReporter(nil)); err == nil || !strings.Contains(err.Error(), "python: lock the environment: ") {
		t.Errorf("a lock that cannot be made: got error %v", err)
	}
}

// writer passes each write to a function.
type writer func(string)

func (w writer) Write(p []byte) (int, error) { w(string(p)); return len(p), nil }

// TestWithoutPython checks which variables a Python does not inherit.
func TestWithoutPython(t *testing.T) {
	t.Parallel()
	got := withoutPython([]string{"PATH=/bin", "PYTHONPATH=.", "pythonHOME=x", "MYPYTHON=1", "PYTHON=2", "A=PYTHON"})
	if diff := cmp.Diff([]string{"PATH=/bin", "MYPYTHON=1", "A=PYTHON"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
