package template

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// copies are the steps that a Dockerfile becomes with the files of a directory, without
// those that are no COPY: source, target and the names in the archive.
func copies(t *testing.T, dir, text string) (string, error) {
	t.Helper()
	d := FromDockerfile(strings.NewReader("FROM x\n"+text), nil)
	if d.err != nil {
		return "", d.err
	}
	made, err := prepare(t.Context(), d, &BuildParams{Dir: dir})
	if err != nil {
		return "", err
	}
	t.Cleanup(made.close)
	var all []string
	for _, s := range made.steps {
		for _, u := range made.uploads {
			if s.FilesHash == u.FilesHash {
				names := make([]string, len(u.files))
				for i, f := range u.files {
					names[i] = f.packed()
				}
				all = append(all, fmt.Sprint(s.Args[0], " ", s.Args[1], " ", names))
			}
		}
	}
	return strings.Join(all, "\n"), nil
}

// A pattern without a match copies nothing. A name that is not there is an error with the line
// of the COPY.
func TestCopyWithoutMatch(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"package.json": "p", ".dockerignore": "*.log", "x.log": "l"})
	for text, want := range map[string]string{
		"COPY package.json yarn.lock* ./":  "package.json ./ [package.json]",
		"COPY pnpm* package.json yarn* ./": "package.json ./ [package.json]",
		"COPY *.log package.json ./":       "package.json ./ [package.json]",
		"COPY <<A yarn* /x/\ntext\nA":      "",
		"COPY yarn* pnpm* ./":              "",
	} {
		if got, err := copies(t, dir, text); got != want || err != nil {
			t.Errorf("%s: got %q and error %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"COPY package.json yarn.lock ./", "COPY yarn* yarn.lock ./", "COPY package.json /a\nCOPY yarn.lock /b"} {
		line := fmt.Sprintf("the Dockerfile, line %d: copy ", 2+strings.Count(text, "\n"))
		if got, err := copies(t, dir, text); err == nil || !strings.HasPrefix(err.Error(), line) {
			t.Errorf("%s: got %q and error %v, want one that begins with %q", text, got, err, line)
		}
	}
}

// TestCopyPatterns checks that each matching file of a pattern goes into the target by its last
// name, and each matching directory's content. The archive has these paths for every service.
func TestCopyPatterns(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{
		"p1/src/a.py": "1", "p2/src/b.py": "2", "p2/src/a.py": "later", "conf/one/x": "x", "conf/two/y": "y", "conf/z": "z", "only/d/deep/f": "f", "q/x/n": "", "r/x": "", "[id]/page": "p",
	})
	for text, want := range map[string]string{
		"COPY p*/src/*.py /q/":  "p*/src/*.py /q/ [a.py b.py]",
		"COPY conf/* /c/":       "conf/* /c/ [conf conf/x conf/y conf/z]",
		"COPY p*/src /s/":       "p*/src /s/ [. a.py b.py]",
		"COPY only/* /o":        "only/d /o [only/d only/d/deep only/d/deep/f]",
		"COPY conf/z* /renamed": "conf/z /renamed [conf/z]",
		"COPY **/z /one/":       "conf/z /one/ [conf/z]",
		"COPY [[]i* /x/":        "[[]i* /x/ [. page]",
	} {
		if got, err := copies(t, dir, text); got != want || err != nil {
			t.Errorf("%s: got %q and error %v, want %q", text, got, err, want)
		}
	}
	s := open(t, dir)
	_, files, err := s.sourceOf("p*/src/*.py")
	must.Do(t, err)
	want := map[string]string{"a.py": "-rw-r--r-- later", "b.py": "-rw-r--r-- 2"}
	if diff := cmp.Diff(want, unpack(t, s, files, true)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := copies(t, dir, "COPY [qr] /x/"); err == nil || !strings.Contains(err.Error(), "line 2: copy \"[qr]\": q/x and r/x have one name") {
		t.Errorf("a file and a directory of one name: got %v, want an error", err)
	}
}

// TestCopySymlinks checks that a source that is a symlink is followed, and that a symlink in a
// directory stays one.
func TestCopySymlinks(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{
		"dir/a": "text", "dir/inner": "-> a", "dir/.log": "l", "link": "-> dir/a", "todir": "-> dir", "deep/er": "-> ../dir", "twice": "-> todir",
		"nowhere": "-> missing", "out": "-> ../x", "host": "-> /etc/hostname", ".dockerignore": "dir/.log\nhidden", "hidden": "-> dir/a", "up/here": "-> ..",
	})
	all := func(name string) map[string]string {
		return map[string]string{name + "/": "drwxr-xr-x", name + "/a": "-rw-r--r-- text", name + "/inner": "Lrwxrwxrwx a"}
	}
	for source, want := range map[string]map[string]string{
		"link": {"link": "-rw-r--r-- text"}, "lin*": {"link": "-rw-r--r-- text"}, "todir": all("todir"), "deep/er": all("deep/er"), "twice": all("twice"), "todi?": all("todir"),
		"dir": all("dir"), "todir/a": {"todir/a": "-rw-r--r-- text"}, "todir/inner": {"todir/inner": "-rw-r--r-- text"},
	} {
		s := open(t, dir)
		_, files, err := s.sourceOf(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if diff := cmp.Diff(want, unpack(t, s, files, true)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", source, diff)
		}
	}
	for source, want := range map[string]string{"nowhere": "symlink nowhere leads nowhere", "dir/a nowh*": "symlink nowhere leads nowhere", "out": "escapes", "host": "symlink host leads nowhere", "hidden": "everything is ignored", "ho*": "escapes"} {
		if got, err := copies(t, dir, "COPY "+source+" /x/"); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: got %q and error %v, want line 2 and %q", source, got, err, want)
		}
	}
}

// TestSourcesThatGo checks that a build leaves its definition as it is, and that sources which
// cannot be read, because the directory or the ignore file is wrong, are errors.
func TestSourcesThatGo(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"conf/z": "z", "README.md": "r", "link": "-> README.md"})
	d := FromDockerfile(strings.NewReader("FROM x\nCOPY conf/z* /renamed"), nil)
	before := lines(d)
	made, err := prepare(t.Context(), d, &BuildParams{Dir: dir})
	must.Do(t, err)
	made.close()
	if diff := cmp.Diff(before, lines(d)); diff != "" {
		t.Errorf("the definition (-before +after):\n%s", diff)
	}
	s := open(t, dir)
	if _, _, err := s.sourceOf("../x"); err == nil || !strings.Contains(err.Error(), "leads out of the directory") {
		t.Errorf("a source outside: got error %v", err)
	}
	for _, source := range []string{"link", "README.md", "l*"} {
		if _, _, err := open(t, dir, "[[:no:]]").sourceOf(source); err == nil || !strings.Contains(err.Error(), "syntax error") {
			t.Errorf("%s with a wrong pattern of files to ignore: got error %v", source, err)
		}
	}
	// The directory is still open. Another one takes its name, and then none.
	must.Do(t, os.Rename(dir, dir+".moved"))
	t.Cleanup(func() { must.Do(t, os.RemoveAll(dir+".moved")) })
	if found, err := s.real("README.md"); !errors.Is(err, fs.ErrNotExist) || found != "" {
		t.Errorf("no directory: got %q and error %v", found, err)
	}
	must.Do(t, os.Mkdir(dir, 0o700))
	if found, err := s.real("README.md"); !errors.Is(err, fs.ErrNotExist) || found != "" {
		t.Errorf("another directory: got %q and error %v", found, err)
	}
}
