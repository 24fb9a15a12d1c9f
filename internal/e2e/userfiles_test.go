//go:build linux

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// An explicit PATH, of a sandbox or of one command, overrides the PATH of login shells,
// and the directory's files add to it.
func TestExplicitPath(t *testing.T) {
	t.Parallel()
	for _, level := range []local.Isolation{local.Full, local.Restricted} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			cloud := sandboxtest.New(t, local.WithWarm(0), local.WithIsolation(level))
			sb := cloud.Create(t)
			path := func(sb *sandbox.Sandbox, envs map[string]string) string {
				t.Helper()
				result, err := sb.Commands.Run(t.Context(), "echo $PATH", &sandbox.CommandParams{Envs: envs})
				must.Do(t, err)
				return strings.TrimSpace(result.Stdout)
			}
			own := path(sb, nil)
			if !strings.Contains(own, "/usr/bin") {
				t.Errorf("PATH of a sandbox: got %q, want one with /usr/bin", own)
			}
			mine := "/opt/mine:" + own
			if got := path(sb, map[string]string{"PATH": mine}); got != mine {
				t.Errorf("of a command: got %q, want %q", got, mine)
			}
			created := cloud.Create(t, sandbox.WithEnvs(map[string]string{"PATH": mine}))
			if got := path(created, nil); got != mine {
				t.Errorf("of a sandbox: got %q, want %q", got, mine)
			}
			if got := sandboxtest.Run(t, created, `env -i HOME="$HOME" bash -l -c 'echo $PATH'`); level == local.Full && strings.TrimSpace(got) != own {
				t.Errorf("without an environment: got %q, want %q", got, own)
			}
		})
	}
}

// hostileFiles are possible contents of a user's .bashrc and .profile.
var hostileFiles = map[string]string{"exits": "exit 1", "reads": "read line; cat", "prints": "echo noise; echo noise >&2"}

// The user's commands read .bashrc and .profile, as on the service, and this program's own
// commands do not.
func TestUserFiles(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	source := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(source, "file"), []byte("text"), 0o644))
	must.Do(t, sb.Files.Write(t.Context(), ".bashrc", []byte("FROM=bashrc"), nil))
	if got := sandboxtest.Run(t, sb, "echo $FROM"); got != "bashrc" {
		t.Errorf(".bashrc: got %q, want that it is read", got)
	}
	for name, text := range hostileFiles {
		// The places where a file may be, and BASH_ENV names one.
		home := cloudWith(t, text)
		check := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		check("UploadDir", home.Files.UploadDir(t.Context(), source, "up", nil))
		target := t.TempDir()
		check("DownloadDir", home.Files.DownloadDir(t.Context(), "up", target, nil))
		if got, err := os.ReadFile(filepath.Join(target, "file")); string(got) != "text" {
			t.Errorf("%s: what came back: %q, %v", name, got, err)
		}
		check("git init", home.Git.Init(t.Context(), "repo", nil))
		hash, err := home.Git.Commit(t.Context(), "repo", "first", &sandbox.GitCommitParams{AuthorName: "a", AuthorEmail: "a@b.c", AllowEmpty: true})
		if len(hash) != 40 {
			t.Errorf("%s: commit: got %q, %v", name, hash, err)
		}
		_, err = home.RunProgram(t.Context(), &sandbox.ProgramParams{Dir: source, Command: "true"})
		if _, exited := errors.AsType[*sandbox.ExitError](err); err != nil && !exited { // the user's command may exit
			check("RunProgram", err)
		}
		if _, err := home.Dial(t.Context(), 1); !errors.Is(err, sandbox.ErrPortClosed) {
			t.Errorf("%s: dial a closed port: %v", name, err)
		}
	}
}

// cloudWith returns a sandbox whose shells find text in every file that they look for.
func cloudWith(t *testing.T, text string) *sandbox.Sandbox {
	t.Helper()
	sb := shared(t).Create(t, sandbox.WithEnvs(map[string]string{"BASH_ENV": "/tmp/env", "ENV": "/tmp/env"}))
	for _, file := range []string{"/tmp/env", ".bashrc", ".profile", ".bash_profile"} {
		must.Do(t, sb.Files.Write(t.Context(), file, []byte(text+"\n"), nil))
		must.Do(t, sb.Files.Write(t.Context(), "/root/"+filepath.Base(file), []byte(text+"\n"), &sandbox.FileParams{User: "root"}))
	}
	return sb
}

// A build's commands have the PATH of ENV. Its ready check, like the sandbox's, and the
// start of MCP servers read no file of the user.
func TestTemplateWithUserFiles(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	b.write(t, "mine", "#!/bin/sh\necho mine > ~/ran\n", 0o755)
	b.write(t, "mcp-gateway", "#!/bin/sh\n", 0o755)
	b.must(t, "mcp-gateway", template.FromBase().
		Copy("mine", "/opt/mine/", &template.CopyParams{User: "root"}).
		Copy("mcp-gateway", "/usr/local/bin/", &template.CopyParams{User: "root"}).
		Env(map[string]string{"PATH": "/opt/mine:/usr/local/bin:/usr/bin:/bin"}).
		Run("mine", nil).
		Run("printf 'exit 1\\n' | tee /root/.bashrc /home/user/.bashrc > /home/user/.profile", &template.RunParams{User: "root"}).
		Ready("test -s ~/ran"))
	sb, err := b.client.Create(t.Context(), sandbox.WithMCP(map[string]any{"one": nil}))
	must.Do(t, err)
	if err := sb.Kill(t.Context()); err != nil {
		t.Error(err)
	}
}

// Commands of root begin in its home in the template base, where its files are looked for,
// too, and in the home of user in the default template; homes and accounts are the same as
// on the service.
func TestBaseSkeleton(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	base, interpreter := cloud.Create(t, sandbox.WithTemplate("base")), cloud.Create(t)
	root := func(sb *sandbox.Sandbox, command string) string {
		t.Helper()
		result, err := sb.Commands.Run(t.Context(), command, &sandbox.CommandParams{User: "root"})
		if err != nil {
			t.Errorf("%s: %v, stdout %q, stderr %q", command, err, result.Stdout, result.Stderr)
			return ""
		}
		return result.Stdout
	}
	if got := root(base, "pwd; echo text > made"); got != "/root\n" {
		t.Errorf("directory of root in base: got %q, want /root", got)
	}
	if got, err := base.Files.ReadText(t.Context(), "made", &sandbox.FileParams{User: "root"}); got != "text\n" {
		t.Errorf("a file of root: got %q, %v", got, err)
	}
	if got := sandboxtest.Run(t, base, "pwd"); got != "/home/user" {
		t.Errorf("directory of user in base: got %q", got)
	}
	if got := root(interpreter, "pwd"); got != "/home/user\n" {
		t.Errorf("directory of root in the default template: got %q, want /home/user", got)
	}
	if got := sandboxtest.Run(t, base, "ls -A ~ /etc/skel | sort -u"); !strings.Contains(got, ".bash_logout\n.bashrc\n") || !strings.Contains(got, ".profile") {
		t.Errorf("a home: got %q", got)
	}
	for _, tt := range []struct{ program, command, want string }{
		{"useradd", "useradd -m one && id one && stat -c %U:%G /home/one/.bashrc", "uid=1001(one) gid=1001(one) groups=1001(one)\none:one\n"},
		{"adduser", "adduser --quiet --disabled-password --gecos '' two 2>&1 && id -gn two && stat -c %U:%G:%a /home/two /home/two/.profile && getent passwd two | cut -d: -f7", "two\ntwo:two:755\ntwo:two:644\n/bin/bash\n"},
		{"useradd", "su - one -c 'echo $PATH' | grep -c /usr/local/bin", "1\n"},
	} {
		if got := root(base, "command -v "+tt.program+" || echo none"); got == "none\n" {
			continue
		}
		if got := root(base, tt.command); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.command, got, tt.want)
		}
	}
}
