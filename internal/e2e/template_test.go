//go:build linux

package e2e

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// builder builds with the Go builder, and keeps the log.
type builder struct {
	client *sandbox.Client
	dir    string
	log    []string
}

func newBuilder(t *testing.T, options ...local.Option) *builder {
	t.Helper()
	client, err := sandbox.NewClient(sandboxtest.New(t, append(options, local.WithWarm(0))...).Option())
	must.Do(t, err)
	t.Cleanup(func() { client.Close() })
	return &builder{client: client, dir: t.TempDir()}
}

func (b *builder) write(t *testing.T, name, text string, mode fs.FileMode) {
	t.Helper()
	path := filepath.Join(b.dir, name)
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.WriteFile(path, []byte(text), mode))
}

func (b *builder) build(t *testing.T, name string, d template.Definition) (*template.Built, error) {
	t.Helper()
	b.log = nil
	built, err := template.Build(t.Context(), b.client.Templates, name, d, &template.BuildParams{
		Dir: b.dir, Log: func(e api.BuildLogEntry) { b.log = append(b.log, e.Message) },
	})
	if err != nil && built != nil {
		t.Logf("log of %s:\n%s", name, strings.Join(b.log, "\n"))
	}
	return built, err
}

func (b *builder) must(t *testing.T, name string, d template.Definition) *template.Built {
	t.Helper()
	built, err := b.build(t, name, d)
	must.Do(t, err)
	return built
}

// said reports whether a line of the log has a text.
func (b *builder) said(text string) bool {
	return slices.ContainsFunc(b.log, func(line string) bool { return strings.Contains(line, text) })
}

// run runs a command in a sandbox of a template and returns its output.
func (b *builder) run(t *testing.T, name, command string) string {
	t.Helper()
	sb, err := b.client.Create(t.Context(), sandbox.WithTemplate(name))
	must.Do(t, err)
	defer sb.Close()
	result, err := sb.Commands.Run(t.Context(), command, nil)
	must.Do(t, err)
	return result.Stdout
}

func TestTemplateWithEveryStep(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	b.write(t, "app/main.sh", "#!/bin/sh\necho main $GREETING\n", 0o755)
	b.write(t, "app/data/one.txt", "one\n", 0o644)
	b.write(t, "app/data/skipped.log", "no\n", 0o644)
	b.write(t, "two.txt", "two\n", 0o600)
	b.write(t, ".dockerignore", "**/*.log\n", 0o644)
	must.Do(t, os.Symlink("main.sh", filepath.Join(b.dir, "app", "link")))
	d := template.FromBase().
		User("root").
		MakeDir("/srv/app", &template.MakeDirParams{Mode: 0o755}).
		Workdir("/srv/app").
		Copy("app", ".", nil).
		Copy("*.txt", "texts/", &template.CopyParams{User: "user", Mode: 0o640}).
		Env(map[string]string{"GREETING": "hello"}).
		Env(map[string]string{"MORE": "$GREETING there"}).
		Run("echo $MORE > said", nil).
		Rename("said", "kept", nil).
		Symlink("/srv/app/kept", "/srv/app/again", nil).
		Run("touch gone", nil).
		Remove("gone", &template.RemoveParams{Force: true}).
		Run("chown -R user .", nil).
		User("user")
	first := b.must(t, "every:v1", d)
	if !slices.Equal(first.Tags, []string{"v1"}) || !b.said(`uploaded "app"`) {
		t.Errorf("built %+v with the log %q", first, b.log)
	}
	got := b.run(t, "every:v1", `pwd; whoami; ls; ls data; ./link; cat again; stat -c '%a %U' texts/two.txt; cat texts/two.txt`)
	want := "/srv/app\nuser\nagain\ndata\nkept\nlink\nmain.sh\ntexts\none.txt\nmain hello\nhello there\n640 user\ntwo\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	// The same template again is neither uploaded nor run.
	b.must(t, "every:v2", d)
	if !b.said(`"app" is there already`) || !b.said("CACHED") {
		t.Errorf("the second time: log %q", b.log)
	}
	// A change is noticed, and a template of a template begins with its files.
	b.write(t, "app/data/one.txt", "changed\n", 0o644)
	b.must(t, "every:v2", d)
	b.must(t, "child", template.FromTemplate("every:v2").Run("echo child >> data/one.txt", nil))
	if got, want := b.run(t, "child", "pwd; cat data/one.txt; echo $MORE"), "/srv/app\nchanged\nchild\nhello there\n"; got != want {
		t.Errorf("child: got %q, want %q", got, want)
	}
	if got, want := b.run(t, "every:v1", "cat data/one.txt"), "one\n"; got != want {
		t.Errorf("the first build: got %q, want %q", got, want)
	}
}

func TestTemplateThatStarts(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	b.must(t, "web", template.FromBase().
		Run("echo served > index.html", nil).
		Start("exec python3 -m http.server 8000", template.WaitPort(8000)))
	if got := b.run(t, "web", "curl -s http://localhost:8000/index.html"); got != "served\n" {
		t.Errorf("got %q, want served", got)
	}
	if b.said("netlink") {
		t.Errorf("the log says what the check complained about: %q", b.log)
	}
}

// A sandbox whose start command fails is not waited for, and the failure is logged.
func TestTemplateWhoseStartFails(t *testing.T) {
	t.Parallel()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must.Do(t, err)
	defer log.Close()
	b := newBuilder(t, local.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	const start = `[ -z "$BROKEN" ] || exit 3; exec python3 -m http.server 8000`
	b.must(t, "fragile", template.FromBase().Start(start, template.WaitPort(8000)))
	sb, err := b.client.Create(t.Context(), sandbox.WithTemplate("fragile"), sandbox.WithEnvs(map[string]string{"BROKEN": "1"}))
	must.Do(t, err)
	defer sb.Close()
	if logged, err := os.ReadFile(log.Name()); err != nil || !strings.Contains(string(logged), "the start command failed: exit status 3") {
		t.Errorf("logged %q, error %v, want how the start command ended", logged, err)
	}
}

func TestTemplateThatFails(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	_, err := b.build(t, "broken", template.FromBase().Run("true", nil).Run("echo the reason >&2; exit 3", nil))
	failed, ok := errors.AsType[*template.BuildError](err)
	if !ok {
		t.Fatalf("got %v, want a *BuildError", err)
	}
	if failed.Step != "2" || failed.Instruction != "RUN echo the reason >&2; exit 3" || !b.said("the reason") {
		t.Errorf("got step %q, instruction %q and log %q", failed.Step, failed.Instruction, b.log)
	}
	if _, err := b.client.Templates.Resolve(t.Context(), "broken"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("its name: got %v, want ErrNotFound", err)
	}
	for name, d := range map[string]template.Definition{
		"debian": template.FromImage("debian:stable", nil), "nowhere": template.FromTemplate("nowhere"),
	} {
		if _, err := b.build(t, "x", d); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("from %s: got %v, want an error that names it", name, err)
		}
	}
}

// A Dockerfile, as it may be found anywhere, with additions that only this package
// makes.
func TestTemplateOfADockerfile(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	b.write(t, "requirements.txt", "none\n", 0o644)
	d := template.FromDockerfile(strings.NewReader(`ARG IMAGE=e2bdev/base:latest
FROM --platform=linux/`+runtime.GOARCH+` ${IMAGE} AS only
ARG APP=/srv/app VERSION
ENV NAME="a name" \
    PATH=$PATH:/srv/bin
WORKDIR ${APP}
COPY --chmod=600 requirements.txt ${APP}/list.txt
COPY <<EOF settings
name=$NAME cost=\$5
EOF
RUN <<EOF
set -e
echo version $VERSION > version
whoami > builder
EOF
RUN ["/bin/sh", "-c", "echo 'a list' > list"]
EXPOSE 80
`), &template.DockerfileParams{Args: map[string]string{"VERSION": "7"}})
	if got := d.Warnings(); len(got) > 0 {
		t.Errorf("got the warnings %q, want none", got)
	}
	b.must(t, "docker", d)
	// The profile of a login shell sets PATH again.
	got := b.run(t, "docker", "pwd; whoami; cat settings version builder list; stat -c '%a %U' list.txt; echo $NAME; tr '\\0' '\\n' </proc/$$/environ | grep ^PATH= | grep -o /srv/bin")
	const want = "/srv/app\nuser\nname=a name cost=$5\nversion 7\nroot\na list\n600 root\na name\n/srv/bin\n"
	// If sandboxes have only one account, root is another name of it.
	if only := strings.ReplaceAll(want, "root", "user"); got != want && (got != only || b.run(t, "docker", "id -u root") != b.run(t, "docker", "id -u user")) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// COPY and USER of a Dockerfile have the same effect as in Docker.
func TestTemplateCopiesAsDocker(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	for _, name := range []string{"package.json", "p1/src/a.py", "p2/src/b.py", "conf/one/x", "conf/y", "real/file"} {
		b.write(t, name, name, 0o644)
	}
	must.Do(t, os.Symlink("real", filepath.Join(b.dir, "link")))
	b.must(t, "asdocker", template.FromDockerfile(strings.NewReader(`FROM e2bdev/base
ARG UID=1000 GID=1000
WORKDIR /srv
COPY package.json yarn.lock* ./
COPY p*/src/*.py q/
COPY conf/* c/
COPY link* l
USER ${UID}:${GID}
RUN whoami > /tmp/who
ENV A=1
ARG A=2
RUN echo $A > /tmp/a
`), nil))
	got := b.run(t, "asdocker", "find /srv -type f | sort; cat /tmp/who /tmp/a; echo $A")
	const want = "/srv/c/x\n/srv/c/y\n/srv/l/file\n/srv/package.json\n/srv/q/a.py\n/srv/q/b.py\nuser\n2\n1\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A caller who stops waiting has not stopped the build, and can wait again.
func TestTemplateThatIsWaitedForTwice(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	api := b.client.API()
	started, err := template.Start(t.Context(), api.Templates, "slow", template.FromBase().Run("sleep 1; echo done > file", nil), nil)
	must.Do(t, err)
	again := &template.Built{TemplateID: started.TemplateID, BuildID: started.BuildID}
	must.Do(t, template.Wait(patience.Context(t), api.Templates, again, nil))
	if got := b.run(t, "slow", "cat file"); got != "done\n" {
		t.Errorf("got %q, want done", got)
	}
}
