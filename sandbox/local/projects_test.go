//go:build linux

package local_test

import (
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// projectBases are the images that the Dockerfiles of the projects begin with and copy from. All
// are one image here, whose tools are a script: the test compares our builds with Docker's.
var projectBases = []string{
	"docker.io/library/composer:2", "docker.io/library/debian:bookworm", "docker.io/library/debian:bookworm-slim", "docker.io/library/eclipse-temurin:21-jdk",
	"docker.io/library/eclipse-temurin:21-jre", "docker.io/library/golang:1.26", "docker.io/library/nginx:alpine", "docker.io/library/node:22",
	"docker.io/library/node:22-alpine", "docker.io/library/node:22-slim", "docker.io/library/perl:5.40", "docker.io/library/php:8.4-apache",
	"docker.io/library/postgres:17-alpine", "docker.io/library/python:3.12", "docker.io/library/python:3.12-alpine", "docker.io/library/python:3.12-slim",
	"docker.io/library/python:3.13-slim-bookworm", "docker.io/library/ruby:3.4.1-slim",
	"docker.io/denoland/deno:2.1.4", "docker.io/hexpm/elixir:1.18.1-erlang-27.2-debian", "docker.io/lukemathwalker/cargo-chef:latest-rust-1", "docker.io/oven/bun:1",
	"gcr.io/distroless/static-debian12:nonroot", "ghcr.io/astral-sh/uv:0.5", "mcr.microsoft.com/dotnet/aspnet:9.0", "mcr.microsoft.com/dotnet/sdk:9.0",
	"quay.io/jupyter/base-notebook:latest",
}

// projectTools are the commands that the script of the base stands in for.
var projectTools = strings.Fields("addgroup adduser apk apt-get bun bundle cargo cmake composer corepack cpanm deno dotnet go groupadd jar mamba mix mvn npm pip pnpm python useradd")

// ownIDs gives accounts other ids than those of user, who is in sandboxes and not in Docker.
var ownIDs = strings.NewReplacer("id 1000 ", "id 1234 ", "USER 1000:1000", "USER 1234:1234")

// projectState prints the environment of a build's command: its user and group ids, its directory
// and its variables. It leaves out the variables that a sandbox or the shell sets.
const projectState = `#!/bin/sh
id -u
id -g
pwd
env | grep -v '^\(HOSTNAME\|LOGNAME\|OLDPWD\|PWD\|SHLVL\|USER\|_\|E2B_.*\)=\|^LANG=C.UTF-8$' | sort
`

// projectLook lists the files of a project's last stage, without those that each sandbox adds.
const projectLook = `#!/bin/sh
cd /result
find . | sort | while IFS= read -r name; do
  case $name in
  ./.e2b | ./bin/* | ./dev* | ./etc | ./home | ./home/user | ./proc* | ./root | ./root/.jupyter* | ./run | ./sys* | ./tmp) continue ;;
  ./etc/group | ./etc/hostname | ./etc/hosts | ./etc/passwd | ./etc/profile* | ./etc/resolv.conf | ./etc/shadow) continue ;;
  esac
  if [ -L "$name" ]; then
    echo "$(stat -c '%A %u %g %n' "$name") -> $(readlink "$name")"
  elif [ -f "$name" ]; then
    echo "$(stat -c '%A %u %g %s %n' "$name") $(md5sum <"$name")"
  else
    stat -c '%A %u %g %n' "$name"
  fi
done
for file in etc/passwd etc/group tmp/.state; do
  [ ! -f $file ] || sed '/^\(root\|user\):/d' $file
done
`

// projectBase makes the image in the daemon, under all names, and a registry that has it.
func projectBase(t *testing.T, daemon *dockertest.Daemon) (mirror string) {
	t.Helper()
	dir, saved := t.TempDir(), filepath.Join(t.TempDir(), "base.tar")
	tool, err := os.ReadFile(filepath.Join("testdata", "projecttool.sh"))
	must.Do(t, err)
	accounts, groups := "root:x:0:0:root:/root:/bin/sh\njovyan:x:1000:100::/home/jovyan:/bin/sh\n", "root:x:0:\nusers:x:100:\n"
	for i, name := range []string{"bun", "deno", "nonroot", "www-data", "nobody"} {
		id := string(rune('1' + i))
		accounts += name + ":x:200" + id + ":200" + id + "::/home/" + name + ":/bin/sh\n"
		groups += name + ":x:200" + id + ":\n"
	}
	for path, text := range map[string]string{
		"etc/passwd": accounts, "etc/group": groups, "etc/apache2/sites-available/000.conf": "DocumentRoot /var/www/html\n", "var/www/html/index.html": "hello",
		"bin/state": projectState, "bin/look": projectLook, "bin/tool": string(tool), "home/jovyan/.profile": "", "uv": string(tool), "uvx": string(tool), "etc/nginx/conf.d/default.conf": "default",
	} {
		file := filepath.Join(dir, path)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)))
	}
	for _, tool := range projectTools {
		must.Do(t, os.Symlink("tool", filepath.Join(dir, "bin", tool)))
	}
	made := daemon.Docker(t, "create", dockertest.Bare, "true")
	daemon.Docker(t, "cp", dir+"/.", made+":/")
	id := daemon.Docker(t, "commit", "--change", "ENV NB_UID=1000 NB_GID=100 HOME=/home/jovyan PATH=/usr/local/bin:/usr/bin:/bin", made, projectBases[0])
	daemon.Docker(t, "rm", made)
	daemon.Docker(t, "save", "--output", saved, projectBases[0])
	image, err := tarball.ImageFromPath(saved, nil)
	must.Do(t, err)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	for _, base := range projectBases {
		daemon.Docker(t, "tag", id, base)
		to, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/" + base)
		must.Do(t, err)
		must.Do(t, remote.Write(to, image))
	}
	return server.URL
}

// hereDocument matches a here-document, which the Docker of Debian does not know.
var hereDocument = regexp.MustCompile(`<<EOF\n(.*)\n(.*)\nEOF\n`)

// projectDockerfile returns a project's Dockerfile with one more stage, which lists the files of the
// project's last one. It leaves out the instructions that are refused, as template.TestProjects
// shows, and the syntax line, because Docker would fetch that.
func projectDockerfile(t *testing.T, dir string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "Dockerfile"))
	must.Do(t, err)
	text := regexp.MustCompile(`(?m)^(STOPSIGNAL|HEALTHCHECK|# syntax=).*\n`).ReplaceAllString(string(data), "")
	at := strings.LastIndex("\n"+text, "\nFROM ")
	first, last, _ := strings.Cut(text[at:], "\n")
	first, _, _ = strings.Cut(first, " AS ")
	if first != "FROM scratch" {
		last += "RUN /bin/state >/tmp/.state\n"
	}
	return text[:at] + first + " AS project\n" + last + "FROM debian:bookworm AS looked\nUSER root\nCOPY --from=project / /result\n"
}

// TestDockerProjects builds Dockerfiles in the manner of public projects here and with Docker, and
// compares their last stages. Their base images and the tools that they call are stand-ins, so the
// work of the real tools is not tried.
func TestDockerProjects(t *testing.T) {
	t.Parallel()
	daemon, dir := dockertest.Shared(t), t.TempDir()
	archive, err := txtar.ParseFile(filepath.Join("..", "template", "testdata", "projects.txtar"))
	must.Do(t, err)
	must.Do(t, txtar.Write(archive, dir))
	for _, f := range archive.Files {
		if strings.HasPrefix(string(f.Data), "#!") {
			must.Do(t, os.Chmod(filepath.Join(dir, f.Name), 0o755))
		}
	}
	mirror := projectBase(t, daemon)
	options := []local.Option{}
	for _, host := range []string{"docker.io", "gcr.io", "ghcr.io", "mcr.microsoft.com", "quay.io"} {
		options = append(options, local.WithRegistryMirror(host, mirror+"/"+host))
	}
	cloud := sandboxtest.New(t, options...)
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() { _ = client.Close() })
	files, err := filepath.Glob(filepath.Join(dir, "*", "Dockerfile"))
	if err != nil || len(files) < 20 {
		t.Fatalf("got %d projects and error %v, want twenty", len(files), err)
	}
	for _, file := range files {
		context := filepath.Dir(file)
		project := filepath.Base(context)
		t.Run(project, func(t *testing.T) {
			t.Parallel()
			text := projectDockerfile(t, context)
			build := func() (log string, err error) {
				all := new(strings.Builder)
				d := template.FromDockerfile(strings.NewReader(text+"RUN /bin/look >/tmp/.look; sed 's/^/"+lookMark+"/' /tmp/.look\n"), nil)
				_, err = template.Build(t.Context(), client.Templates, project, d, &template.BuildParams{Dir: context, Log: func(e api.BuildLogEntry) { all.WriteString(e.Message + "\n") }})
				return all.String(), err
			}
			if project == "rails" {
				if log, err := build(); !strings.Contains(log, "GID '1000' already exists") {
					t.Errorf("a group with the id of user: got error %v, want that it exists\n%s", err, log)
				}
			}
			text = ownIDs.Replace(text)
			to := t.TempDir()
			daemon.Build(t, context, hereDocument.ReplaceAllString(text, "$1 && $2\n")+"RUN /bin/look >/tmp/.look\nFROM scratch\nCOPY --from=looked /tmp/.look /\n", to, nil)
			theirs, err := os.ReadFile(filepath.Join(to, ".look"))
			must.Do(t, err)
			log, err := build()
			if err != nil {
				t.Fatalf("%v\n%s", err, log)
			}
			if diff := gocmp.Diff(listed(string(theirs)), lookedAt(log)); diff != "" {
				t.Errorf("(-Docker +here):\n%s", diff)
			}
		})
	}
}
