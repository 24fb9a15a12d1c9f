package sandbox

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func TestInstall(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var uploaded string
	var removed atomic.Value
	s.files = func(_ http.ResponseWriter, r *http.Request) {
		uploaded = r.URL.Query().Get("path")
		_, _ = io.Copy(io.Discard, r.Body)
	}
	var pip, verified []string
	lists := 0
	s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		_ = started(stream, 1)
		p := r.GetProcess()
		switch args := p.GetArgs(); {
		case p.GetCmd() == "rm":
			removed.Store(args[1])
		case p.GetCmd() == "/bin/sh":
			pip = args
			if p.GetEnvs()["PIP_NO_INPUT"] != "1" {
				t.Errorf("envs: %v", p.GetEnvs())
			}
			if strings.HasPrefix(args[len(args)-1], "nosuch") {
				_ = stderr(stream, []byte("ERROR: Could not find a version\nERROR: No matching distribution found for nosuch\n\n[notice] x\n"))
				return ended(stream, 1, "exit status 1")
			}
		case strings.Contains(args[1], "import_module"):
			verified = args[2:]
			_ = stdout(stream, []byte(`{"package": "My.pkg", "module": "mine"}`+"\n"+`{"error": "ImportError: no"}`+"\n"+`{"package": "numpy", "module": "numpy"}`+"\n"))
			return ended(stream, 139, "signal: segmentation fault")
		case len(args) > 2: // modules of the upgraded packages
			_ = stdout(stream, []byte(`{"numpy": ["numpy"], "dep": ["deplib"]}`))
		default:
			lists++
			_ = stdout(stream, []byte(`{"directory": "/site", "packages": `+[]string{`{"numpy":"1.0","dep":"1","same":"3","other":"1"}`, `{"numpy":"2.0","dep":"2","same":"3","new":"0.1","other":"1","My.pkg":"1.0"}`}[(lists-1)%2]+"}"))
		}
		return ended(stream, 0, "exit status 0")
	}
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		k.Say(m, jupyter.Shell, "execute_reply", map[string]any{"status": "ok", "user_expressions": map[string]any{
			"modules": map[string]any{"status": "ok", "data": map[string]any{"text/plain": "'sys,numpy,os'"}},
		}})
		k.Status(m, "idle")
	})
	wheel := filepath.Join(t.TempDir(), "my_pkg-1.0-py3-none-any.whl")
	must.Do(t, os.WriteFile(wheel, []byte("wheel"), 0o600))
	sb := s.sandbox()
	if _, err := sb.RunCode(t.Context(), "import numpy", nil); err != nil {
		t.Fatal(err)
	}
	got, err := sb.Packages.Install(t.Context(), []string{"numpy>=2", "same", wheel}, nil)
	must.Do(t, err)
	want := &Installation{
		Packages:      []InstalledPackage{{"My.pkg", "1.0"}, {"dep", "2"}, {"new", "0.1"}, {"numpy", "2.0"}, {"same", "3"}},
		RestartNeeded: []string{"numpy"},
		NotImportable: []ImportFailure{{"My.pkg", "mine", "ImportError: no"}, {"numpy", "numpy", "Python ended with status 139"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"install", "--no-compile", "numpy>=2", "same", uploaded}, pip[8:]); diff != "" || !strings.HasSuffix(uploaded, "/my_pkg-1.0-py3-none-any.whl") {
		t.Errorf("%s %s", uploaded, diff)
	}
	if diff := cmp.Diff([]string{"My.pkg", "numpy"}, verified); diff != "" {
		t.Errorf("imported to see whether they work (-want +got):\n%s", diff)
	}
	patience.Until(t, "the wheel is removed", func() bool { return removed.Load() == filepath.ToSlash(filepath.Dir(uploaded)) })
	lists = 0
	_, err = sb.Packages.Install(t.Context(), []string{"nosuch"}, nil)
	failed, ok := errors.AsType[*InstallError](err)
	if !ok || failed.ExitCode != 1 || !strings.Contains(failed.Stderr, "notice") || !strings.Contains(err.Error(), "No matching distribution found for nosuch") {
		t.Errorf("%v", err)
	}
}

// A secret is masked wherever the pieces of the output end.
func TestPipOutput(t *testing.T) {
	t.Parallel()
	const printed = "Looking in https://me:s3cret@index.test\nthe end: s3cret"
	for size := 1; size <= len(printed); size++ {
		var got strings.Builder
		o := &pipOutput{to: &got, masks: strings.NewReplacer("s3cret", "****")}
		for rest := printed; rest != ""; {
			part := rest[:min(size, len(rest))]
			rest = rest[len(part):]
			if n, err := o.Write([]byte(part)); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		must.Do(t, o.flush())
		if want := "Looking in https://me:****@index.test\nthe end: ****"; got.String() != want {
			t.Errorf("in pieces of %d: %q, want %q", size, got.String(), want)
		}
	}
	var got strings.Builder
	o := &pipOutput{to: &got, masks: strings.NewReplacer()}
	_, _ = o.Write(make([]byte, maxPipLine+1))
	if got.Len() != maxPipLine+1 {
		t.Errorf("of an endless line %d bytes came", got.Len())
	}
}

// TestInstallationClone checks that a clone has every field of an installation, and shares no list
// with it.
func TestInstallationClone(t *testing.T) {
	t.Parallel()
	installed := new(Installation)
	lists := reflect.ValueOf(installed).Elem()
	for i := range lists.NumField() {
		lists.Field(i).Set(reflect.MakeSlice(lists.Field(i).Type(), 1, 1))
	}
	cloned := installed.clone()
	for i := range lists.NumField() {
		list := reflect.ValueOf(cloned).Elem().Field(i)
		if name := lists.Type().Field(i).Name; list.Len() != 1 || list.Pointer() == lists.Field(i).Pointer() {
			t.Errorf("%s: got %v, want a list of its own with one element", name, list)
		}
	}
}
