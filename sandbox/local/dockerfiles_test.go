//go:build linux

package local_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// look lists all files beside those of the base, and the state of the last RUN.
const look = `#!/bin/sh
cat /tmp/.state
for top in /*; do
  case $top in
  /bin | /dev | /etc | /home | /lib* | /proc | /root | /run | /sys | /usr | /var) continue ;;
  esac
  find "$top"
done | sort | while IFS= read -r name; do
  if [ -L "$name" ]; then
    echo "$(stat -c '%A %u %g %n' "$name") -> $(readlink "$name")"
  elif [ -f "$name" ]; then
    time=$(stat -c %Y "$name")
    [ "$time" -lt 1600000000 ] || time=now
    echo "$(stat -c '%A %u %g %h %s %n' "$name") $time $(md5sum <"$name")"
  else
    stat -c '%A %u %g %n' "$name"
  fi
done | sed '\#/tmp/.state #d; \#/tmp/.look #d; \# /tmp$#d'
`

// lookLast writes the ids, the directory and the variables of a command, without the variables
// that only sandboxes or only Docker set. Then it lists all files, into a file and the build's log.
const lookLast = `RUN { id -u; id -g; pwd; env | grep -v '^\(HOSTNAME\|LOGNAME\|OLDPWD\|PWD\|SHLVL\|USER\|_\|E2B_.*\)=\|^LANG=C.UTF-8$' | sort; } >/tmp/.state; /bin/look >/tmp/.look; sed 's/^/` + lookMark + `/' /tmp/.look`

// lookMark begins the lines of the list in a log.
const lookMark = "look: "

// dockerStage is a stage that the test builds with Docker, too, to compare the results.
type dockerStage struct {
	name         string
	ours, before string // its text; before: for an older Docker
}

// besideInStage limits the cases that share a stage.
const besideInStage = 5

// readDockerfiles returns the stages that the cases make.
func readDockerfiles(t *testing.T) []dockerStage {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "dockerfiles.txtar"))
	must.Do(t, err)
	before := map[string]string{}
	for _, file := range archive.Files {
		if name, ok := strings.CutSuffix(file.Name, " as before"); ok {
			before[name] = string(file.Data)
		}
	}
	var alone, beside []dockerStage
	for _, file := range archive.Files {
		name, isBeside := strings.CutSuffix(file.Name, " beside")
		s := dockerStage{name, string(file.Data), cmp.Or(before[name], string(file.Data))}
		switch {
		case strings.HasSuffix(name, " as before"):
		case isBeside:
			s.ours, s.before = strings.ReplaceAll(s.ours, "/out", "/out-"+name), strings.ReplaceAll(s.before, "/out", "/out-"+name)
			beside = append(beside, s)
		default:
			alone = append(alone, s)
		}
	}
	for some := range slices.Chunk(beside, besideInStage) {
		shared := dockerStage{name: some[0].name}
		for _, s := range some {
			shared.ours += s.ours
			shared.before += s.before
		}
		alone = append(alone, shared)
	}
	return alone
}

// together returns stages as one Dockerfile. Its last stage has the list of each stage in a file
// with the stage's name.
func together(stages []dockerStage, text func(dockerStage) string) string {
	var b, last strings.Builder
	b.WriteString("ARG BASE\nARG GLOBAL=of-the-file\nFROM $BASE AS base\nCOPY base /\n")
	last.WriteString("FROM scratch\n")
	for _, s := range stages {
		name, text := s.name, text(s)
		if !strings.HasPrefix(text, "FROM ") {
			text = "FROM base AS CASE\n" + text
		}
		text = strings.ReplaceAll(text, " AS CASE", " AS "+name)
		for _, of := range []string{"made", "Made", "MADE", "first", "files"} { // stages have names of their own
			text = strings.NewReplacer("AS "+of+"\n", "AS "+of+"-"+name+"\n", "FROM "+of+" ", "FROM "+of+"-"+name+" ", "--from="+of+" ", "--from="+of+"-"+name+" ").Replace(text)
		}
		b.WriteString(text + lookLast + " # " + name + "\n") // named: of a cached step there is no log
		fmt.Fprintf(&last, "COPY --from=%s /tmp/.look /%s\n", name, name)
	}
	return b.String() + last.String()
}

// dockerContext makes the directory that the Dockerfiles copy from.
func dockerContext(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	made := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, text := range map[string]string{
		".dockerignore": "# what is not copied\n*.log\n!kept.log\nignored\n!ignored/but/this\n**/*.tmp\nnames/out?\n", "one.log": "l", "kept.log": "k", "ignored/x": "x", "ignored/but/this": "this", "ignored/but/not": "not",
		"a.txt": "a\n", "b.txt": "b\n", "run.sh": "#!/bin/sh\n", "dir/one": "1", "dir/two": "22", "dir/sub/deep": "deep", "dir/sub/x.tmp": "t", "dir/.hidden": "h",
		"p1/src/a.py": "1", "p2/src/b.py": "2", "p2/src/a.py": "later", "conf/x/in": "in", "conf/y/in": "over", "conf/y/more": "m", "conf/z": "z",
		"with space/x y": "space", "names/ü": "u", "names/-dash": "d", "names/a b": "ab", "names/quote'": "q", "names/out1": "o", "names/$x": "x",
		"modes/setuid": "s", "modes/secret": "s", "modes/all": "a", "modes/closed/in": "i", "hard/one": "h", "not.tar.gz": "no archive",
		"base/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\napp:x:1001:50:app:/home/app:/bin/sh\n",
		"base/etc/group":  "root:x:0:\nstaff:x:50:\ncrew:x:60:\nnogroup:x:65534:\n", "base/bin/look": look, "base/home/app/.keep": "",
		"arch.tar": packedFiles(t, false), "arch.tgz": packedFiles(t, true), "archives/in.tar": packedFiles(t, false),
	} {
		path := filepath.Join(dir, name)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644), os.Chtimes(path, made, made)))
	}
	sparse, err := os.Create(dir + "/sparse")
	must.Do(t, err)
	must.Do(t, errors.Join(
		sparse.Truncate(1<<20), sparse.Close(), os.Chtimes(dir+"/sparse", made, made),
		os.Symlink("a.txt", dir+"/link"), os.Symlink("dir", dir+"/linkdir"), os.Symlink("one", dir+"/dir/link"), os.Symlink("../none", dir+"/dir/dangling"),
		os.Link(dir+"/hard/one", dir+"/hard/two"), os.Mkdir(dir+"/empty", 0o755), os.Chmod(dir+"/run.sh", 0o755), os.Chmod(dir+"/base/bin/look", 0o755),
		os.Chmod(dir+"/modes/setuid", 0o755|os.ModeSetuid), os.Chmod(dir+"/modes/secret", 0o600), os.Chmod(dir+"/modes/all", 0o777), os.Chmod(dir+"/modes/closed", 0o700|os.ModeSticky),
		os.Chown(dir+"/b.txt", 7, 8), // whose ids mean nothing elsewhere
	))
	return dir
}

// packedFiles returns an archive.
func packedFiles(t *testing.T, zipped bool) string {
	t.Helper()
	var b, z bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Name: "in/", Typeflag: tar.TypeDir, Mode: 0o750, Uid: 5, Gid: 6}, {Name: "in/file", Typeflag: tar.TypeReg, Mode: 0o640, Uid: 5, Gid: 6},
		{Name: "in/link", Typeflag: tar.TypeSymlink, Linkname: "file", Mode: 0o777}, {Name: "in/hard", Typeflag: tar.TypeLink, Linkname: "in/file", Mode: 0o640, Uid: 5, Gid: 6}, {Name: "top", Typeflag: tar.TypeReg, Mode: 0o4755},
	} {
		h.ModTime = time.Date(2019, 1, 2, 3, 4, 5, 0, time.UTC)
		must.Do(t, w.WriteHeader(h))
	}
	must.Do(t, w.Close())
	if !zipped {
		return b.String()
	}
	to := gzip.NewWriter(&z)
	_, err := to.Write(b.Bytes())
	must.Do(t, err)
	must.Do(t, to.Close())
	return z.String()
}

// TestDockerDockerfiles builds Dockerfiles of all kinds here and with Docker, from one base and
// one directory, and compares the results: names, modes, owners by number, links, contents and
// times of copied files, and the user, the directory and the variables of commands. Several cases
// are the stages of one Dockerfile, because each build takes long.
func TestDockerDockerfiles(t *testing.T) {
	t.Parallel()
	daemon := dockertest.Shared(t)
	all, context, images, theirs := readDockerfiles(t), dockerContext(t), t.TempDir(), t.TempDir()
	reference, _ := savedImage(t, images, dockertest.Bare)
	cloud := sandboxtest.New(t, local.WithImageDir(images))
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() { _ = client.Close() })
	for stages := range slices.Chunk(all, 24) { // Docker builds all stages at once
		daemon.Build(t, context, together(stages, func(s dockerStage) string { return s.before }), theirs, map[string]string{"BASE": dockertest.Bare, "GIVEN": "given"})
	}
	text := together(all, func(s dockerStage) string { return s.ours })
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(filepath.Join(theirs, s.name))
			must.Do(t, err)
			log := new(strings.Builder)
			// Each is built by itself: to copy what it looks like out of it takes two sandboxes more.
			d := template.FromDockerfile(strings.NewReader(text), &template.DockerfileParams{Target: s.name, Args: map[string]string{"BASE": reference, "GIVEN": "given"}})
			_, err = template.Build(t.Context(), client.Templates, s.name, d, &template.BuildParams{Dir: context, Log: func(e api.BuildLogEntry) { log.WriteString(e.Message + "\n") }})
			if err != nil {
				t.Fatalf("%v\n%s", err, log)
			}
			if diff := gocmp.Diff(listed(string(want)), lookedAt(log.String())); diff != "" {
				t.Errorf("%s:\n%s\n(-Docker +here):\n%s", s.name, s.ours, diff)
			}
		})
	}
}

// lookedAt returns the list that is in the log of a build.
func lookedAt(log string) []string {
	var lines []string
	for _, line := range listed(log) {
		if text, ok := strings.CutPrefix(line, lookMark); ok {
			lines = append(lines, text)
		}
	}
	return lines
}

// listed returns the lines of a list, which are short enough for a diff to show them whole.
func listed(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }
