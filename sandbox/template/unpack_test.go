package template

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

func tarOf(t *testing.T, zipped bool) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must.Do(t, w.WriteHeader(&tar.Header{Name: "in", Typeflag: tar.TypeDir, Mode: 0o755}))
	if err := w.Close(); err != nil || !zipped {
		return b.String()
	}
	var z bytes.Buffer
	zip := gzip.NewWriter(&z)
	if _, err := zip.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	must.Do(t, zip.Close())
	return z.String()
}

// ADD unpacks archives, which their content tells, and copies all else.
func TestAdd(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"text": "text", "empty": "", "x.tar": "not a tar", "a.xz": "\xfd7zXZ\x00", "a.tar.xz": "\xfd7zXZ\x00", "a.tar.zst": "\x28\xb5\x2f\xfd", "a.zst": "\x28\xb5\x2f\xfd", "no.gz": "\x1f\x8bno", "dir/plain": "p"})
	for name, text := range map[string]string{"plain": tarOf(t, false), "it's.tgz": tarOf(t, true), "dir/in.tar": tarOf(t, false), "bz": "BZh9"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	copied := func(source string) string { return "COPY " + source + "|/tmp/.e2bctl-add/|root|\n" }
	for add, want := range map[string]string{
		"text /t": "COPY text|/t||", "empty /t": "COPY empty|/t||", "x.tar /t": "COPY x.tar|/t||", "a.xz /t": "COPY a.xz|/t||", "bz /t": "COPY bz|/t||", "no.gz /t": "COPY no.gz|/t||", "a.zst /t": "COPY a.zst|/t||", "dir /t": "COPY dir|/t||",
		"plain /t":                copied("plain") + "RUN mkdir -p -- /t && tar -xf /tmp/.e2bctl-add/plain -C /t && rm -r /tmp/.e2bctl-add|root",
		"a.tar.zst /t":            copied("a.tar.zst") + "RUN mkdir -p -- /t && tar --zstd -xf /tmp/.e2bctl-add/a.tar.zst -C /t && rm -r /tmp/.e2bctl-add|root",
		"a.tar.xz t/":             copied("a.tar.xz") + "RUN mkdir -p -- t/ && tar -xJf /tmp/.e2bctl-add/a.tar.xz -C t/ && rm -r /tmp/.e2bctl-add|root",
		`it's.tgz $HOME/$(a)`:     copied("it's.tgz") + `RUN mkdir -p -- "$HOME/\$(a)" && tar -xzf '/tmp/.e2bctl-add/it'\''s.tgz' -C "$HOME/\$(a)" && rm -r /tmp/.e2bctl-add|root`,
		"--unpack=false plain /t": "COPY plain|/t||",
	} {
		words := strings.Fields(add)
		for i, w := range words {
			words[i] = `"` + strings.ReplaceAll(w, `'`, `\\'`) + `"`
		}
		flag := ""
		if strings.HasPrefix(add, "--") {
			flag, words = strings.Fields(add)[0]+" ", words[1:]
		}
		d := FromDockerfile(strings.NewReader("FROM x\nADD "+flag+"["+strings.Join(words, ", ")+"]"), nil)
		must.Do(t, d.err)
		p, err := prepare(t.Context(), d, &BuildParams{Dir: dir})
		must.Do(t, err)
		p.close()
		if diff := cmp.Diff("USER root\nWORKDIR /\n"+want+defaults, lines(Definition{steps: p.steps})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", add, diff)
		}
	}
	for add, want := range map[string]string{
		"pl* plain /t/":       "",
		"*.t* /t/":            "the Dockerfile, line 2: ADD *.t*: it matches several files, and it's.tgz is an archive: name each",
		"--chown=me plain /t": "the Dockerfile, line 2: ADD plain: --chown and --chmod of an archive are not supported",
	} {
		d := FromDockerfile(strings.NewReader("FROM x\nADD "+add), nil)
		p, err := prepare(t.Context(), d, &BuildParams{Dir: dir})
		if err == nil {
			p.close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", add, err, want)
		}
	}
}

// TestUnpacked checks that only an ADD unpacks, that a forced one is repeated whole, and the errors of
// an archive that cannot be read.
func TestUnpacked(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"plain": tarOf(t, false)})
	p, err := prepare(t.Context(), FromDockerfile(strings.NewReader("FROM x\nCOPY plain /t"), nil), &BuildParams{Dir: dir})
	must.Do(t, err)
	p.close()
	if diff := cmp.Diff("USER root\nWORKDIR /\nCOPY plain|/t||"+defaults, lines(Definition{steps: p.steps})); diff != "" {
		t.Errorf("COPY (-want +got):\n%s", diff)
	}
	s := open(t, dir)
	files, err := s.find("plain")
	must.Do(t, err)
	for _, force := range []bool{true, false} {
		add := stepOf("plain", "/t")
		add.Force = force
		steps, err := s.unpacked(add, files)
		if err != nil || len(steps) != 2 {
			t.Fatalf("repeated %v: got %+v and error %v, want two steps", force, steps, err)
		}
		if steps[0].Force != force || steps[1].Force != force || steps[1].copy != nil {
			t.Errorf("repeated %v: got %+v and error %v", force, steps, err)
		}
	}
	must.Do(t, os.Remove(filepath.Join(dir, "plain")))
	if steps, err := s.unpacked(stepOf("plain", "/t"), files); steps != nil || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "read plain: ") {
		t.Errorf("an archive that is gone: got %v and error %v", steps, err)
	}
	must.Do(t, os.Mkdir(filepath.Join(dir, "plain"), 0o700))
	if steps, err := s.unpacked(stepOf("plain", "/t"), files); steps != nil || err == nil || !strings.Contains(err.Error(), "read plain: ") {
		t.Errorf("a directory in its place: got %v and error %v", steps, err)
	}
}
