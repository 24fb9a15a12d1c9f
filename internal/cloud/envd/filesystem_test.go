//go:build linux

package envd

import (
	"errors"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/must"
)

const (
	isFile = filesystem.FileType_FILE_TYPE_FILE
	isTree = filesystem.FileType_FILE_TYPE_DIRECTORY
)

func TestStat(t *testing.T) {
	t.Parallel()
	d := serve(t)
	put(t, d.home+"/file", "text")
	must.Do(t, errors.Join(os.Symlink("file", d.home+"/link"), os.Symlink("none", d.home+"/broken"), unix.Mkfifo(d.home+"/pipe", 0o600)))
	// Other groups with the same number may come first in the names, so the name
	// comes from envd.
	group := d.server.users.ownerGroup(uint32(os.Getgid()))
	for _, want := range []*filesystem.EntryInfo{
		{Name: "file", Type: isFile, Path: "file", Size: 4, Mode: 0o644, Permissions: "-rw-r--r--"},
		{Name: "link", Type: isFile, Path: "link", Size: 4, Mode: 0o644, Permissions: "Lrwxrwxrwx", SymlinkTarget: proto.String("file")},
		{Name: "broken", Path: "broken", Size: 4, Permissions: "Lrwxrwxrwx", SymlinkTarget: proto.String("broken")},
		{Name: "pipe", Path: "pipe", Mode: 0o600, Permissions: "prw-------"},
	} {
		res, err := d.files(connect.WithProtoJSON()).Stat(t.Context(), connect.NewRequest(&filesystem.StatRequest{Path: want.Path}))
		if err != nil {
			t.Errorf("%s: %v", want.Path, err)
			continue
		}
		want.Path, want.Owner, want.Group = d.home+"/"+want.Path, "me", group
		if want.SymlinkTarget != nil {
			want.SymlinkTarget = proto.String(d.home + "/" + want.GetSymlinkTarget())
		}
		info, err := os.Lstat(want.GetPath())
		must.Do(t, err)
		want.ModifiedTime = timestamppb.New(info.ModTime())
		if diff := cmp.Diff(want, res.Msg.GetEntry(), protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Name, diff)
		}
	}
	_, err := d.files().Stat(t.Context(), connect.NewRequest(&filesystem.StatRequest{Path: "none"}))
	if want := "file not found: lstat"; connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), want) {
		t.Errorf("missing: %v, want connect.CodeNotFound and an error with %q", err, want)
	}
	res, err := d.files().Stat(t.Context(), connect.NewRequest(&filesystem.StatRequest{Path: d.home + "/../" + d.home[1:]}))
	if err == nil {
		t.Errorf("a path that is not there: %v, want an error", res.Msg)
	}
	root, err := d.files().Stat(t.Context(), connect.NewRequest(&filesystem.StatRequest{Path: "/tmp/../"}))
	if err != nil || root.Msg.GetEntry().GetPath() != "/tmp/../" {
		t.Errorf("an absolute path must come back as it was: %v, %v, want path %q and no error", root, err, "/tmp/../")
	}
}

func TestListDir(t *testing.T) {
	t.Parallel()
	d := serve(t)
	must.Do(t, errors.Join(os.MkdirAll(d.home+"/b/c", 0o755), os.Mkdir(d.home+"/empty", 0o755),
		os.Symlink("b", d.home+"/link"), os.Symlink("loop", d.home+"/loop")))
	put(t, d.home+"/a", "")
	put(t, d.home+"/b/c/d", "")
	put(t, d.home+"/b.txt", "")
	for _, test := range []struct {
		path  string
		depth uint32
		want  []string
	}{
		{"", 0, []string{"/a", "/b", "/b.txt", "/empty", "/link", "/loop"}},
		{"", 1, []string{"/a", "/b", "/b.txt", "/empty", "/link", "/loop"}},
		{"", 2, []string{"/a", "/b", "/b/c", "/b.txt", "/empty", "/link", "/loop"}},
		{"", 9, []string{"/a", "/b", "/b/c", "/b/c/d", "/b.txt", "/empty", "/link", "/loop"}},
		{"link", 2, []string{"/link/c", "/link/c/d"}},
		{"empty", 1, nil},
	} {
		res, err := d.files().ListDir(t.Context(), connect.NewRequest(&filesystem.ListDirRequest{Path: test.path, Depth: test.depth}))
		if err != nil {
			t.Errorf("%q: %v", test.path, err)
			continue
		}
		var got []string
		for _, entry := range res.Msg.GetEntries() {
			got = append(got, strings.TrimPrefix(entry.GetPath(), d.home))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q to %d (-want +got):\n%s", test.path, test.depth, diff)
		}
	}
	for path, want := range map[string]connect.Code{"none": connect.CodeNotFound, "a": connect.CodeInvalidArgument, "loop": connect.CodeFailedPrecondition, "~x": connect.CodeInvalidArgument} {
		_, err := d.files().ListDir(t.Context(), connect.NewRequest(&filesystem.ListDirRequest{Path: path}))
		if connect.CodeOf(err) != want {
			t.Errorf("%q: %v, want %v", path, err, want)
		}
	}
}

func TestMakeDir(t *testing.T) {
	t.Parallel()
	d := serve(t)
	put(t, d.home+"/file", "")
	res, err := d.files().MakeDir(t.Context(), connect.NewRequest(&filesystem.MakeDirRequest{Path: "x/y"}))
	if err != nil || res.Msg.GetEntry().GetType() != isTree || res.Msg.GetEntry().GetMode() != 0o755 {
		t.Errorf("got %v, %v, want type %v, mode 0o755 and no error", res, err, isTree)
	}
	for path, want := range map[string]connect.Code{"x/y": connect.CodeAlreadyExists, "file": connect.CodeInvalidArgument, "file/x": connect.CodeInternal} {
		_, err := d.files().MakeDir(t.Context(), connect.NewRequest(&filesystem.MakeDirRequest{Path: path}))
		if connect.CodeOf(err) != want {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	if res, body := d.do(t, "POST", "/filesystem.Filesystem/MakeDir", `{"path":"x"}`, "Content-Type", "application/json"); res.StatusCode != 409 {
		t.Errorf("%d %s, want 409", res.StatusCode, body)
	}
}

func TestMoveAndRemove(t *testing.T) {
	t.Parallel()
	d := serve(t)
	put(t, d.home+"/a", "text")
	move := func(from, to string) (*connect.Response[filesystem.MoveResponse], error) {
		return d.files().Move(t.Context(), connect.NewRequest(&filesystem.MoveRequest{Source: from, Destination: to}))
	}
	res, err := move("a", "new/b")
	if err != nil || res.Msg.GetEntry().GetPath() != d.home+"/new/b" || content(t, d.home+"/new/b") != "text" {
		t.Errorf(`got %v, %v, want path %v, the content %q and no error`, res, err, d.home+"/new/b", "text")
	}
	if _, err := move("a", "c"); connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "source file not found") {
		t.Errorf("missing source: %v, want connect.CodeNotFound and an error with %q", err, "source file not found")
	}
	if _, err := move("new", "new/b/c"); connect.CodeOf(err) != connect.CodeInternal {
		t.Errorf("into a file: %v, want connect.CodeInternal", err)
	}
	for range 2 { // removing a missing file succeeds
		if _, err := d.files().Remove(t.Context(), connect.NewRequest(&filesystem.RemoveRequest{Path: "new"})); err != nil {
			t.Errorf("Remove: %v", err)
		}
	}
	if list, err := os.ReadDir(d.home); err != nil || len(list) != 0 {
		t.Errorf("left %v, %v, want no files and no error", list, err)
	}
}

func TestLegacyClient(t *testing.T) {
	t.Parallel()
	d := serve(t)
	put(t, d.home+"/a", "text")
	for agent, legacy := range map[string]bool{"connect-python": true, "connect-python/1.0": false} {
		res, body := d.do(t, "POST", "/filesystem.Filesystem/Stat", `{"path":"a"}`, "Content-Type", "application/json", "User-Agent", agent)
		stripped := compact(t, []byte(body)) == `{"entry":{"name":"a","type":"FILE_TYPE_FILE","path":"`+d.home+`/a"}}`
		if stripped != legacy || (res.Header.Get("X-E2B-Legacy-SDK") == "true") != legacy {
			t.Errorf("%s: got %v %s, want a legacy answer: %v", agent, res.Header, body, legacy)
		}
	}
}
