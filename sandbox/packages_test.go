package sandbox

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

func TestRequirements(t *testing.T) {
	t.Parallel()
	wheel := filepath.Join(t.TempDir(), "My_pkg-1.0-py3-none-any.whl")
	if err := os.WriteFile(wheel, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for r, name := range map[string]string{
		"humanize": "humanize", "humanize==4.*": "humanize", "Foo.Bar_baz>=1,<2": "foo-bar-baz", "a[x,y]~=1.0": "a", "a ( >=1 )": "a",
		`a>=1; python_version < "3.12" and os_name == 'posix'`: "a", "a===1+local": "a", "a!=1.*": "a", wheel: "my-pkg",
	} {
		if _, names, err := parseRequirements([]string{r}); err != nil || names[0] != name {
			t.Errorf("%q: %q, %v", r, names, err)
		}
	}
	for _, r := range []string{
		"", " ", "-r", "-rx", "--index-url=http://x", "a; rm -rf /", "a && b", "a|b", "a`b`", "$(a)", "a\nb", "a==1\n--index-url", "a @ http://x/y.whl",
		"http://x/y-1-py3-none-any.whl", "git+https://x", "../a", "/abs", "a/b", "missing-1.0-py3-none-any.whl", "x y", "é", "a>", strings.Repeat("a", 2000), "bad.whl",
	} {
		_, _, err := parseRequirements([]string{"ok", r})
		refused, ok := errors.AsType[*RequirementError](err)
		if !ok || refused.Requirement != r || !errors.Is(err, api.ErrInvalidArgument) || len(err.Error()) > 400 {
			t.Errorf("%q: %v", r, err)
		}
	}
	if _, _, err := parseRequirements(nil); err == nil {
		t.Error("nothing to install")
	}
}

func FuzzRequirements(f *testing.F) {
	f.Add("a[b]>=1,<2; python_version < '3'")
	f.Add("a; $(x)")
	f.Fuzz(func(t *testing.T, r string) {
		wheels, _, err := parseRequirements([]string{r})
		if err == nil && len(wheels) == 0 && (r[0] == '-' || strings.ContainsAny(r, "\n\r\x00$`|&\\/@%{}#^?:")) {
			t.Errorf("%q is taken for a requirement", r)
		}
	})
}

func TestInstall(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var uploaded, removed string
	s.files = func(_ http.ResponseWriter, r *http.Request) {
		uploaded = r.URL.Query().Get("path")
		_, _ = io.Copy(io.Discard, r.Body)
	}
	var pip []string
	lists := 0
	s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		_ = started(stream, 1)
		p := r.GetProcess()
		switch args := p.GetArgs(); {
		case p.GetCmd() == "rm":
			removed = args[1]
		case len(args) > 1 && args[1] == "pip":
			pip = args
			if p.GetEnvs()["PIP_NO_INPUT"] != "1" {
				t.Errorf("envs: %v", p.GetEnvs())
			}
			if strings.HasPrefix(args[len(args)-1], "nosuch") {
				_ = stderr(stream, []byte("ERROR: Could not find a version\nERROR: No matching distribution found for nosuch\n\n[notice] x\n"))
				return ended(stream, 1, "exit status 1")
			}
		case len(args) > 2: // modules of what was upgraded
			_ = stdout(stream, []byte(`{"numpy": ["numpy"], "dep": ["deplib"]}`))
		default:
			lists++
			_ = stdout(stream, []byte([]string{`{"numpy":"1.0","dep":"1","same":"3","other":"1"}`, `{"numpy":"2.0","dep":"2","same":"3","new":"0.1","other":"1","My.pkg":"1.0"}`}[(lists-1)%2]))
		}
		return ended(stream, 0, "exit status 0")
	}
	s.kernel = answering(func(k *fakeKernel, m *jupyter.Message) {
		k.begin(m)
		k.say(m, jupyter.Shell, "execute_reply", map[string]any{"status": "ok", "user_expressions": map[string]any{
			"modules": map[string]any{"status": "ok", "data": map[string]any{"text/plain": "'sys,numpy,os'"}},
		}})
		k.status(m, "idle")
	})
	wheel := filepath.Join(t.TempDir(), "my_pkg-1.0-py3-none-any.whl")
	if err := os.WriteFile(wheel, []byte("wheel"), 0o600); err != nil {
		t.Fatal(err)
	}
	sb := s.sandbox()
	if _, err := sb.RunCode(t.Context(), "import numpy", nil); err != nil {
		t.Fatal(err)
	}
	got, err := sb.Packages.Install(t.Context(), "numpy>=2", "same", wheel)
	if err != nil {
		t.Fatal(err)
	}
	want := &Installation{
		Packages:      []Package{{"My.pkg", "1.0"}, {"dep", "2"}, {"new", "0.1"}, {"numpy", "2.0"}, {"same", "3"}},
		RestartNeeded: []string{"numpy"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"-m", "pip", "install", "numpy>=2", "same", uploaded}, pip); diff != "" || !strings.HasSuffix(uploaded, "/my_pkg-1.0-py3-none-any.whl") {
		t.Errorf("%s %s", uploaded, diff)
	}
	eventually(t, "the wheel is removed", func() bool { return removed == filepath.ToSlash(filepath.Dir(uploaded)) })
	lists = 0
	_, err = sb.Packages.Install(t.Context(), "nosuch")
	failed, ok := errors.AsType[*InstallError](err)
	if !ok || failed.ExitCode != 1 || !strings.Contains(failed.Stderr, "notice") || !strings.Contains(err.Error(), "No matching distribution found for nosuch") {
		t.Errorf("%v", err)
	}
}
