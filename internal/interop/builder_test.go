package interop

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// TestBuildersAgree has the builders of all languages define the same templates, and
// compares their requests: the same steps have the same results, so that each builder
// finds the layers that another has built and uploaded.
func TestBuildersAgree(t *testing.T) {
	t.Parallel()
	dir := buildContext(t)
	want := map[string]any{}
	for name, d := range definitions() {
		want[name] = sent(t, d, dir)
	}
	for _, generation := range []string{"newest", "2.45"} {
		t.Run("js-"+generation, func(t *testing.T) {
			t.Parallel()
			script := javascript(t, installJS(t, generation))
			agree(t, want, output(t, nil, node(t, generation), filepath.Join(filepath.Dir(script), "definitions.mjs"), dir))
		})
		t.Run("python-"+generation, func(t *testing.T) {
			t.Parallel()
			interpreter, packages := installPython(t, generation)
			env := []string{"PYTHONPATH=" + packages, "PYTHONDONTWRITEBYTECODE=1"}
			agree(t, want, output(t, env, interpreter, filepath.Join("python", "definitions.py"), dir))
		})
	}
}

// differ are definitions that older builders send in another way: sizes of directories
// are in their hashes, and they read Dockerfiles by rules of their own.
var differ = map[string]string{
	"js-newest":   "directories",
	"js-2.45":     "directories",
	"python-2.45": "directories documents",
}

func agree(t *testing.T, want map[string]any, printed []byte) {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal(printed, &got); err != nil {
		t.Fatalf("%v in %.200s", err, printed)
	}
	_, client, _ := strings.Cut(t.Name(), "/")
	for name, definition := range got {
		if diff := cmp.Diff(want[name], plainly(definition)); diff != "" && !strings.Contains(differ[client], name) {
			t.Errorf("%s (-ours +theirs):\n%s", name, diff)
		} else if diff == "" && strings.Contains(differ[client], name) {
			t.Errorf("%s is the same now: take it from the list", name)
		}
	}
}

// plainly removes fields that services do not read.
func plainly(definition any) any {
	object, _ := definition.(map[string]any)
	steps, _ := object["steps"].([]any)
	for _, s := range steps {
		one, _ := s.(map[string]any)
		for _, unread := range []string{"forceUpload", "resolveSymlinks", "gzip"} {
			delete(one, unread)
		}
	}
	return definition
}

// buildContext makes a directory to copy from.
func buildContext(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.txt": "a", "run": "#!/bin/sh\n", "skipped.log": "no", ".dockerignore": "# what is not copied\nskipped.log\ntop/secret\n",
		"top/one.txt": "one", "top/two.txt": "two", "top/hidden.txt": "no", "top/.dot": "dot", "top/secret/key": "no",
		"top/deep/x.py": "x", "y.py": "y", "account.json": `{"a":1}`, "top-level.txt": "sorts between top and what is in it",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		mode := os.FileMode(0o644)
		if name == "run" {
			mode = 0o755
		}
		must.Do(t, os.WriteFile(path, []byte(text), mode))
	}
	for link, target := range map[string]string{"link": "a.txt", "top/up": "../top/deep"} {
		must.Do(t, os.Symlink(target, filepath.Join(dir, filepath.FromSlash(link))))
	}
	return dir
}

// definitions returns the definitions of js/definitions.mjs and python/definitions.py.
func definitions() map[string]template.Definition {
	from := template.FromBase
	registry := func(r api.ImageRegistry) *template.ImageParams { return &template.ImageParams{Registry: &r} }
	return map[string]template.Definition{
		"steps": from().
			Run("echo one", nil).
			Run("echo two && echo three", &template.RunParams{User: "root"}).
			Workdir("/srv/app").
			User("root").
			Env(map[string]string{"B": "two $A", "A": "1"}).
			Remove("/tmp/a b", &template.RemoveParams{Recursive: true, Force: true}).
			Remove("/tmp/c", &template.RemoveParams{User: "root"}).
			Rename("/tmp/d", "/tmp/e", &template.RenameParams{Force: true}).
			MakeDir("/srv/data", &template.MakeDirParams{Mode: 0o750, User: "root"}).
			MakeDir("/srv/more", nil).
			Symlink("/srv/data", "/srv/link", &template.SymlinkParams{Force: true}).
			Pip([]string{"requests", "numpy==2.*"}, nil).
			Pip(nil, &template.PipParams{User: true}).
			Npm([]string{"lodash"}, &template.NpmParams{Global: true}).
			Npm([]string{"eslint"}, &template.NpmParams{Dev: true}).
			Npm(nil, nil).
			Bun([]string{"tsx"}, &template.NpmParams{Dev: true}).
			Apt([]string{"jq", "curl"}, &template.AptParams{NoRecommends: true}).
			GitClone("https://example.com/a.git", &template.GitCloneParams{Path: "/srv/a", Branch: "main", Depth: 1}).
			SkipCache().
			Run("echo last", nil).
			Start("python3 -m http.server 8000", template.WaitPort(8000)),
		"url": template.FromImage("debian:stable", registry(api.ImageRegistry{Username: "me", Password: "word"})).
			Ready(template.WaitURL("http://localhost:1/?a=b", 204)),
		"process": template.FromTemplate("other:v1").Ready(template.WaitProcess("sleep")),
		"file": template.FromImage("one.two/image", registry(api.ImageRegistry{AWSAccessKeyID: "id", AWSSecretAccessKey: "key", AWSRegion: "eu"})).
			Ready(template.WaitFile("/tmp/x y")),
		"timeout": template.FromImage("gcr.io/image", registry(api.ImageRegistry{GCPServiceAccount: `{"a":1}`})).
			Ready(template.WaitFor(2500 * time.Millisecond)),
		"files": from().
			Copy("a.txt", "/app/", nil).
			Copy("top/*.txt", "/app/", &template.CopyParams{User: "user:user", Mode: 0o644}).
			Copy("**/*.py", "/app/py", nil).
			Copy("link", "/app/link", nil).
			Copy("link", "/app/followed", &template.CopyParams{FollowLinks: true}).
			Copy("run", "/app/run", &template.CopyParams{Mode: 0o755, Upload: true, Uncompressed: true}),
		"directories": from().Copy("top", "/app", nil).Copy(".", "/all", nil),
		"dockerfile": template.FromDockerfile(strings.NewReader(
			"FROM e2bdev/base\nEXPOSE 80\nRUN echo hello && \\\necho again\nCOPY a.txt run /app/\n"+
				"COPY --chown=user:user top/one.txt /app/\nENV A=1\nARG B=2\nWORKDIR /app\nUSER root\nCMD python3 app.py\n"), nil),
		"documents": template.FromDockerfile(strings.NewReader(
			"FROM e2bdev/base AS only\nENV A=\"one two\" B=$A\nRUN [\"echo\", \"a b\"]\n"+
				"RUN <<EOF\necho one\necho two\nEOF\n"+
				"RUN <<EOF\n#!/usr/bin/env python3\nprint(1)\nEOF\n"+
				"RUN cat <<-EOF > /tmp/x\n\ttext\n\tEOF\n"+
				"COPY <<EOF /srv/\nhome is $HOME, costs 5\\$ `date`\nEOF\n"+
				"COPY --chown=root --chmod=640 <<'EOF' /srv/plain\n$HOME\nEOF\n"+
				"COPY --chmod=755 [\"run\", \"/srv/run\"]\n"+
				"ENTRYPOINT [\"python3\", \"-m\"]\nCMD [\"http.server\", \"80 80\"]\n"), nil),
	}
}

// sent returns our builder's request to start a build.
func sent(t *testing.T, d template.Definition, dir string) any {
	t.Helper()
	var started any
	service := http.NewServeMux()
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	service.HandleFunc("POST /v3/templates", answer(http.StatusAccepted, `{"templateID":"t","buildID":"b"}`))
	service.HandleFunc("GET /templates/t/files/{hash}", func(w http.ResponseWriter, r *http.Request) {
		answer(http.StatusCreated, `{"present":false,"url":"http://`+r.Host+`/upload"}`)(w, r)
	})
	service.HandleFunc("PUT /upload", answer(http.StatusOK, ""))
	service.HandleFunc("POST /v2/templates/t/builds/b", func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&started); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
	})
	server := httptest.NewServer(service)
	defer server.Close()
	client, err := api.NewClient(api.WithAPIKey("e2b_key"), api.WithBaseURL(server.URL))
	must.Do(t, err)
	defer client.Close()
	params := &template.BuildParams{Dir: dir, Ignore: []string{"top/hidden.txt"}}
	if _, err := template.Start(t.Context(), client.Templates, "name", d, params); err != nil {
		t.Errorf("start: %v", err)
	}
	return started
}

// output runs a program and returns its output.
func output(t *testing.T, env []string, program string, arguments ...string) []byte {
	t.Helper()
	command := exec.CommandContext(patience.Context(t), program, arguments...)
	command.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	command.Stderr = &stderr
	printed, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, stderr.String())
	}
	return printed
}
