package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// volumeCalls returns the calls of a volume.
func volumeCalls() map[string]func(ctx context.Context, v *Volume) (any, error) {
	all := &VolumeFileParams{&testMode, &testOwner, &testGroup, true}
	return map[string]func(ctx context.Context, v *Volume) (any, error){
		"open GET /volumecontent/v1/file?path=f": func(ctx context.Context, v *Volume) (any, error) { return v.Read(ctx, "f") },
		"write PUT /volumecontent/v1/file?force=true&path=f x": func(ctx context.Context, v *Volume) (any, error) {
			return nil, v.Write(ctx, "f", []byte("x"), nil)
		},
		"write PUT /volumecontent/v1/file?gid=8&mode=416&path=f&uid=7 x": func(ctx context.Context, v *Volume) (any, error) {
			return nil, v.Write(ctx, "f", []byte("x"), all)
		},
		"mkdir POST /volumecontent/v1/dir?gid=8&mode=416&path=f&uid=7": func(ctx context.Context, v *Volume) (any, error) {
			return nil, v.MakeDir(ctx, "f", all)
		},
		"list GET /volumecontent/v1/dir?depth=2&path=f": func(ctx context.Context, v *Volume) (any, error) {
			return v.List(ctx, "f", &VolumeListParams{2})
		},
		"stat GET /volumecontent/v1/path?path=f": func(ctx context.Context, v *Volume) (any, error) { return v.Stat(ctx, "f") },
		`chmod PATCH /volumecontent/v1/path?path=f {"mode":416,"uid":7,"gid":8}`: func(ctx context.Context, v *Volume) (any, error) {
			return nil, v.SetAttributes(ctx, "f", &VolumeAttributesParams{&testMode, &testOwner, &testGroup})
		},
		"remove DELETE /volumecontent/v1/path?path=f": func(ctx context.Context, v *Volume) (any, error) { return nil, v.Remove(ctx, "f") },
	}
}

// TestVolumeCalls checks the request of each call of a volume, with each of its parameters, its result and its errors.
func TestVolumeCalls(t *testing.T) {
	t.Parallel()
	for name, do := range volumeCalls() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op, want, _ := strings.Cut(name, " ")
			answer, result := aboutEntry, any(nil)
			switch op {
			case "open":
				answer, result = "x", []byte("x")
			case "list":
				answer, result = "["+aboutEntry+"]", []VolumeEntry{testEntry}
			case "stat":
				result = &testEntry
			}
			status := 200
			sb, requests := newControl(t, func(string) (int, string) { return status, answer })
			v := sb.client.Volumes.volume(&api.Volume{ID: "v1", Name: "n", Token: "k"})
			got, err := do(t.Context(), v)
			if diff := cmp.Diff(result, got); diff != "" || err != nil {
				t.Errorf("got error %v, result (-want +got):\n%s", err, diff)
			}
			if diff := cmp.Diff([]string{want}, requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			for _, tt := range []struct {
				status int
				code   string
				want   error
			}{
				{404, "not_found", fs.ErrNotExist}, {409, "path_exists", fs.ErrExist}, {400, "is_a_directory", syscall.EISDIR}, {409, "not_a_directory", syscall.ENOTDIR},
				{403, "forbidden", fs.ErrPermission}, {507, "full", syscall.ENOSPC},
			} {
				status, answer = tt.status, `{"code":"`+tt.code+`","message":"refused"}`
				_, err := do(t.Context(), v)
				failed, ok := errors.AsType[*fs.PathError](err)
				if !ok || failed.Op != op || failed.Path != "n:f" {
					t.Errorf("%d %s: got error %v, want a *fs.PathError of %s", tt.status, tt.code, err, op)
				}
				if !errors.Is(err, tt.want) || errors.Is(err, fs.ErrExist) != errors.Is(tt.want, fs.ErrExist) {
					t.Errorf("%d %s: got error %v, want %v", tt.status, tt.code, err, tt.want)
				}
			}
		})
	}
}

// TestVolumes checks how volumes are found by their ids and names, and the errors of volumes that do not exist.
func TestVolumes(t *testing.T) {
	t.Parallel()
	const about = `{"volumeID":"v1","name":"n","token":"k","domain":"d.test"}`
	refused := "" // a request that is refused
	sb, requests := newControl(t, func(request string) (int, string) {
		switch {
		case refused != "" && strings.HasPrefix(request, refused):
			return 403, `{"code":403,"message":"refused"}`
		case request == "GET /volumes":
			return 200, `[{"volumeID":"v0","name":"v2"},` + about + `]`
		case strings.HasPrefix(request, "DELETE"):
			return 204, ""
		}
		return 200, about
	})
	volumes, ctx := sb.client.Volumes, t.Context()
	create := func() error {
		v, err := volumes.Create(ctx, "n")
		if err == nil && (v.ID() != "v1" || v.Name() != "n") {
			t.Errorf("created is %s named %s", v.ID(), v.Name())
		}
		return err
	}
	open := func(name string) func() error {
		return func() error {
			v, err := volumes.Open(ctx, name)
			if err == nil && (v.ID() != "v1" || v.Name() != "n") {
				t.Errorf("opened is %s named %s", v.ID(), v.Name())
			}
			return err
		}
	}
	remove := func(name string) func() error { return func() error { return volumes.Delete(ctx, name) } }
	list := func() error {
		all, err := volumes.List(ctx)
		if diff := cmp.Diff([]VolumeInfo{{ID: "v0", Name: "v2"}, {"v1", "n", "k", "d.test"}}, all); err == nil && diff != "" {
			t.Errorf("list (-want +got):\n%s", diff)
		}
		return err
	}
	for _, tt := range []struct {
		name  string
		do    func() error
		want  []string
		fails string
	}{
		{"create", create, []string{`POST /volumes {"name":"n"}`}, "sandbox: create volume n: "},
		{"open by id", open("v1"), []string{"GET /volumes", "GET /volumes/v1"}, "sandbox: open volume: "},
		{"open by name", open("n"), []string{"GET /volumes", "GET /volumes/v1"}, "sandbox: open volume: "},
		{"delete", remove("v2"), []string{"GET /volumes", "DELETE /volumes/v0"}, "sandbox: delete volume: "},
		{"list", list, []string{"GET /volumes"}, "sandbox: list volumes: "},
	} {
		before := len(requests())
		must.Do(t, tt.do())
		if diff := cmp.Diff(tt.want, requests()[before:]); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", tt.name, diff)
		}
		for _, refused = range tt.want {
			if err := tt.do(); !errors.Is(err, api.ErrForbidden) || !strings.HasPrefix(err.Error(), tt.fails) {
				t.Errorf("%s without %s: got error %v", tt.name, refused, err)
			}
		}
		refused = ""
	}
	before := len(requests())
	for _, err := range []error{open("none")(), remove("none")()} {
		none, ok := errors.AsType[*NoVolumeError](err)
		if !ok || none.Name != "none" || !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "there is no volume none") {
			t.Errorf("got error %v, want a *NoVolumeError", err)
		}
	}
	if diff := cmp.Diff([]string{"GET /volumes", "GET /volumes"}, requests()[before:]); diff != "" {
		t.Errorf("requests for a volume that does not exist (-want +got):\n%s", diff)
	}
}

// TestVolumeExists checks that only a missing file is none, and that another failure is an error.
func TestVolumeExists(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct{ exists, fails bool }{200: {true, false}, 404: {}, 403: {fails: true}} {
		sb, _ := newControl(t, func(string) (int, string) { return status, aboutEntry })
		exists, err := sb.client.Volumes.volume(&api.Volume{ID: "v1", Token: "k"}).Exists(t.Context(), "f")
		if exists != want.exists || (err != nil) != want.fails {
			t.Errorf("status %d: got %v and error %v", status, exists, err)
		}
	}
}
