package mirror

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestIgnoresAsGitDoes checks that the same files are ignored as by git.
func TestIgnoresAsGitDoes(t *testing.T) {
	t.Parallel()
	git, err := exec.LookPath("git")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("git is not there")
		}
		t.Skip("git is not there")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		".gitignore": "# comment\n\n*.log\n!keep.log\n/top\nbuild/\ndoc/*.txt\na/**/z\n**/cache\nlib/**\n!lib/not\n\\#hash\n\\!bang\n" +
			"trailing  \nkept\\ \n{x,y}\n[a-c]1\n[!a-c]2\nfoo*bar\nq?\nbad[\ndeep/er/\n*.d/\n!important.d/\nwild/*\n!wild/but\r\nx/**/y/w\nback\\\\slash\n/**/leaf\nsp ace\n",
		"sub/.gitignore":        "!*.log\nonly\n/anchored\nin/side\n*\n!*.go\n!.gitignore\n!nested/\n",
		"sub/nested/.gitignore": "*.go\n!main.go\n",
	} {
		write(t, dir, name, text)
	}
	for _, name := range strings.Split("x.log|keep.log|top|in/top|build/x|in/build|doc/a.txt|doc/in/a.txt|in/doc/a.txt|a/z|a/b/z|a/b/c/z|cache|in/cache/x|lib/x|lib/not|"+
		"in/lib/x|#hash|!bang|trailing|kept |kept|x|y|{x,y}|a1|d1|a2|d2|fooXbar|foo-bar|q1|q12|bad[|deep/er/x|in/deep/er/x|some.d/x|important.d/x|file.d2|wild/no|"+
		"wild/but|wild/in/x|x1/y|x0/p/y/w|back\\slash|leaf|in/leaf|sp ace|sub/x.log|sub/only|sub/anchored|sub/in/side|sub/a.go|sub/nested/a.go|sub/nested/main.go|"+
		"sub/nested/in/only|sub/other/a.go|ünïcode|new\nline|plain", "|") {
		write(t, dir, name, "")
	}
	init := exec.Command(git, "init", "-q", dir)
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var names, want []string
	must.Do(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if !d.IsDir() {
			name, _ = filepath.Rel(dir, name)
			names = append(names, name)
		}
		return err
	}))
	check := exec.Command(git, "-c", "core.excludesFile=/dev/null", "-C", dir, "check-ignore", "-z", "--stdin", "--no-index")
	check.Stdin = strings.NewReader(strings.Join(names, "\x00") + "\x00")
	out, err := check.Output()
	must.Do(t, err)
	for name := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		want = append(want, string(name))
	}
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	defer func() {
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	}()
	found, err := scanLocal(root, newRules(nil), nil, nil, func(name, why string) { t.Errorf("%s was skipped: %s", name, why) })
	must.Do(t, err)
	names = slices.DeleteFunc(names, func(name string) bool { _, ok := found[name]; return ok })
	slices.Sort(want)
	slices.Sort(names)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("what is ignored (-git +this):\n%s", diff)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	name = filepath.Join(dir, name)
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	err = errors.Join(err, os.WriteFile(name, []byte(text), 0o600))
	must.Do(t, err)
}
