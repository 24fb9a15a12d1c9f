//go:build linux

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/examples/codeagent/loop"
	"github.com/e2bctl/e2bctl/examples/codeagent/loop/modeltest"
	"github.com/e2bctl/e2bctl/examples/internal/leak"
	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// mirror serves an image of the tests' daemon as python:3.10, with pip and, for pip to find, the
// one package that the Dockerfile requests. It returns its URL.
func mirror(t *testing.T, from string) string {
	t.Helper()
	files, err := dockertest.Files(from)
	must.Do(t, err)
	pip, err := pipFiles(t)
	must.Do(t, err)
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	must.Do(t, err)
	// Compressing takes long with the race detector.
	image, err = mutate.AppendLayers(image, static.NewLayer(files, types.OCIUncompressedLayer), static.NewLayer(pip, types.OCIUncompressedLayer))
	must.Do(t, err)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	to, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://")+"/library/python:3.10", name.Insecure)
	must.Do(t, err)
	must.Do(t, remote.Write(to, image, remote.WithTransport(clienttest.New(t).Transport)))
	return server.URL
}

// pipFiles returns a layer with pip, and with the wheel that it installs.
func pipFiles(t *testing.T) ([]byte, error) {
	t.Helper()
	made := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "python3", "-m", "venv", made).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("python3 -m venv: %w: %s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(made, "lib", "python3.*", "site-packages"))
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("no pip in an environment of python3: %w", err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	add := func(name, text string, mode int64) error {
		err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: mode})
		_, failed := io.WriteString(w, text)
		return errors.Join(err, failed)
	}
	packages := os.DirFS(found[0])
	err = fs.WalkDir(packages, "pip", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || path.Ext(name) == ".pyc" {
			return err
		}
		data, err := fs.ReadFile(packages, name)
		return errors.Join(err, add("opt/pip/"+name, string(data), 0o644))
	})
	wheel, failed := tabulate()
	err = errors.Join(err, failed,
		add("usr/bin/pip", "#!/bin/sh\nPYTHONPATH=/opt/pip exec python3 -m pip \"$@\"\n", 0o755),
		add("etc/pip.conf", "[global]\nno-index = true\nfind-links = /wheels\nbreak-system-packages = true\n", 0o644),
		add("wheels/tabulate-0.9.0-py3-none-any.whl", wheel, 0o644), w.Close())
	return layer.Bytes(), err
}

// tabulate returns a small wheel with the name and version of the real one.
func tabulate() (string, error) {
	var wheel bytes.Buffer
	w := zip.NewWriter(&wheel)
	var errs []error
	const info = "tabulate-0.9.0.dist-info/"
	for name, text := range map[string]string{
		"tabulate.py":     "def tabulate(rows, headers): return '\\n'.join(' '.join(map(str, row)) for row in [headers, *rows])\n",
		info + "METADATA": "Metadata-Version: 2.1\nName: tabulate\nVersion: 0.9.0\n",
		info + "WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "RECORD":   "tabulate.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n",
	} {
		part, err := w.Create(name)
		if err == nil {
			_, err = io.WriteString(part, text)
		}
		errs = append(errs, err)
	}
	errs = append(errs, w.Close())
	return wheel.String(), errors.Join(errs...)
}

// TestTeam builds the unchanged Dockerfile, and makes the team solve the task without a model.
func TestTeam(t *testing.T) {
	daemon := dockertest.Shared(t)
	t.Setenv("DOCKER_HOST", daemon.Host())
	var out strings.Builder
	if err := team(t.Context(), &out, &loop.Model{Script: answers}, fibonacci, local.WithBinary(dockertest.Program(t)), local.WithRegistryMirror("docker.io", mirror(t, dockertest.Image))); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"\nmanager: step 1\nfrom tabulate import tabulate\n",
		"\nhelper: step 1\na, b = 0, 1\n",
		"\nn number\n118 2046711111473984623691759\n",
		"\n=> 2046711111473984623691759\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %q, want %q in it", out.String(), want)
		}
	}
	if left := daemon.Docker(t, "ps", "--all", "--quiet") + daemon.Docker(t, "image", "ls", "--quiet", "--filter", "label=e2bctl.image"); left != "" {
		t.Errorf("containers or images are left: %s", left)
	}
}

// TestTeamHasNoKey searches the container for the model's key while the team asks a model that
// needs it. The team, which runs as nobody and has no network, gets the answer but not the key.
func TestTeamHasNoKey(t *testing.T) {
	key := leak.New("sk-")
	t.Setenv("OPENAI_API_KEY", key.Text) // as in the program
	params := container
	params.User, params.NetworkDisabled, params.Host = "", false, dockertest.Shared(t).Host()
	cloud := sandboxtest.New(t, local.WithEngine(local.EngineDocker), local.WithDocker(params),
		local.WithBinary(dockertest.Program(t)), local.WithRegistryMirror("docker.io", mirror(t, dockertest.Image)))
	var out strings.Builder
	built, err := build(t.Context(), &out, cloud.Option())
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	sb := cloud.Create(t, sandbox.WithTemplate(built), sandbox.WithInternet(false))
	searched := false
	model := modeltest.New(t, sandbox.Key(key.Text), func(chat []loop.Message) string {
		if modeltest.Turn(chat) == 1 {
			f, err := key.Search(t.Context(), sb)
			if err != nil || len(f.Found) > 0 || len(f.Memories) == 0 {
				t.Errorf("the key is in %+v, %v", f, err)
			}
			searched = true
			return modeltest.Code("final_answer(said)")
		}
		return modeltest.Code(`import os, pwd, urllib.request
try:
    urllib.request.urlopen("http://192.0.2.1/", timeout=30)
    reached = "something"
except OSError as e:
    reached = "nothing"
try:
    open("/app/agents.py", "a")
    changed = "changed"
except OSError:
    changed = "safe"
said = f"{pwd.getpwuid(os.getuid()).pw_name} reaches {reached}, and the agents are {changed}"`)
	})
	if err := solveInside(t.Context(), &out, sb, model, "Who are you?"); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if want := "=> nobody reaches nothing, and the agents are safe\n"; !strings.HasSuffix(out.String(), want) || !searched {
		t.Errorf("got %q, want %q at its end", out.String(), want)
	}
}

// TestTeamBuildFails checks that the output of a failed step is shown: here with an image
// without a Python.
func TestTeamBuildFails(t *testing.T) {
	t.Setenv("DOCKER_HOST", dockertest.Shared(t).Host())
	var out strings.Builder
	err := team(t.Context(), &out, &loop.Model{Script: answers}, fibonacci, local.WithBinary(dockertest.Program(t)), local.WithRegistryMirror("docker.io", mirror(t, dockertest.Bare)))
	if err == nil || !strings.Contains(err.Error(), "RUN pip install") || !strings.Contains(out.String(), "python3: not found") {
		t.Errorf("got %v, want which step failed; shown is %q", err, &out)
	}
}
