//go:build linux

package e2e

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// volumeCloud starts a cloud with a volume, and skips the test if sandboxes have no
// mounts.
func volumeCloud(t *testing.T) (*sandboxtest.Cloud, *sandbox.Client, *sandbox.Volume) {
	t.Helper()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	if cloud.Isolation() != local.Full {
		pinned.Skip(t, "volumes need namespaces")
	}
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	volume, err := client.Volumes.Create(t.Context(), "data")
	must.Do(t, err)
	return cloud, client, volume
}

// TestVolumeFiles tries every call about the content of a volume, with the errors of
// files.
func TestVolumeFiles(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, client, volume := volumeCloud(t)
	must.Do(t, errors.Join(
		volume.Write(ctx, "d/a", []byte("one"), nil),
		volume.WriteFrom(ctx, "d/b", strings.NewReader("two"), &sandbox.VolumeFileParams{Mode: new(uint32(0o600))}),
		volume.MakeDir(ctx, "e", nil), volume.MakeDir(ctx, "e", nil),
		volume.SetAttributes(ctx, "d/a", &sandbox.VolumeAttributesParams{Mode: new(uint32(0o444))}),
	))
	entries, err := volume.List(ctx, "/", &sandbox.VolumeListParams{MaxDepth: 2})
	var got []string
	for _, e := range entries {
		got = append(got, e.Path)
	}
	if want := "/d /d/a /d/b /e"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("list: got %q and error %v, want %s", got, err, want)
	}
	if e, err := volume.Stat(ctx, "d/a"); err != nil || e.Mode != 0o444 || e.Size != 3 {
		t.Errorf("stat: got %+v and error %v, want a file of 3 bytes with mode 0444", e, err)
	}
	exclusive := &sandbox.VolumeFileParams{Exclusive: true}
	_, readErr := volume.Read(ctx, "nothing")
	_, dirErr := volume.Read(ctx, "d")
	_, listErr := volume.List(ctx, "d/a", nil)
	for name, test := range map[string]struct{ err, want error }{
		"read nothing":       {readErr, fs.ErrNotExist},
		"read a directory":   {dirErr, syscall.EISDIR},
		"list a file":        {listErr, syscall.ENOTDIR},
		"write again":        {volume.Write(ctx, "d/a", nil, exclusive), fs.ErrExist},
		"make again":         {volume.MakeDir(ctx, "e", exclusive), fs.ErrExist},
		"write in nothing":   {volume.Write(ctx, "x/y", nil, exclusive), fs.ErrNotExist},
		"remove nothing":     {volume.Remove(ctx, "nothing"), fs.ErrNotExist},
		"a volume there is":  {second(client.Volumes.Create(ctx, "data")), api.ErrInvalidArgument},
		"a volume there not": {second(client.Volumes.Open(ctx, "nothing")), api.ErrNotFound},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: got error %v, want %v", name, test.err, test.want)
		}
	}
	again, err := client.Volumes.Open(ctx, volume.ID())
	must.Do(t, err)
	if text, err := again.Read(ctx, "d/b"); string(text) != "two" || err != nil {
		t.Errorf("got %q and error %v, want two", text, err)
	}
	if err := volume.Remove(ctx, "d"); err != nil {
		t.Error(err)
	}
	if there, err := volume.Exists(ctx, "d/a"); there || err != nil {
		t.Errorf("got %v and error %v, want it gone", there, err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestVolumeShared checks that sandboxes and a program outside use a volume at the same
// time, and that a sandbox that was paused, with or without memory, has it again.
func TestVolumeShared(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cloud, client, volume := volumeCloud(t)
	a := cloud.Create(t, sandbox.WithEnvs(startsCold), sandbox.WithVolume("data", "/data"))
	b := cloud.Create(t, sandbox.WithVolume("data", "/home/user/shared"), sandbox.WithVolume("data", "/twice"))
	must.Do(t, volume.Write(ctx, "numbers", []byte("1\n2\n3\n"), nil))
	if got := sandboxtest.Eval(t, a, "sum(map(int, open('/data/numbers')))"); got != "6" {
		t.Errorf("got %s, want 6", got)
	}
	if _, err := a.Commands.Run(ctx, "tac /data/numbers >/data/reversed && ln -s /etc/passwd /data/link && mkfifo /data/pipe", nil); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/home/user/shared/reversed", "/twice/reversed"} {
		if text, err := b.Files.ReadText(ctx, path, nil); text != "3\n2\n1\n" || err != nil {
			t.Errorf("%s: got %q and error %v", path, text, err)
		}
	}
	for _, path := range []string{"link", "pipe"} {
		if text, err := volume.Read(ctx, path); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: got %q and error %v, want it refused", path, text, err)
		}
	}
	info, err := b.Info(ctx)
	if err != nil || len(info.VolumeMounts) != 2 || info.VolumeMounts[0] != (sandbox.VolumeMount{Name: "data", Path: "/home/user/shared"}) {
		t.Errorf("got %+v and error %v, want two mounts", info, err)
	}
	for _, mode := range []sandbox.PauseMode{sandbox.PauseFull, sandbox.PauseFilesystem} {
		must.Do(t, a.Pause(ctx, &sandbox.PauseParams{Mode: mode}))
		if err := client.Volumes.Delete(ctx, "data"); !errors.Is(err, api.ErrConflict) {
			t.Errorf("delete while it is paused: got error %v, want %v", err, api.ErrConflict)
		}
		must.Do(t, b.Files.WriteText(ctx, "/twice/"+string(mode), "while it slept", nil))
		must.Do(t, a.Resume(ctx, nil))
		if text, err := a.Files.ReadText(ctx, "/data/"+string(mode), nil); text != "while it slept" || err != nil {
			t.Errorf("after a pause %s: got %q and error %v", mode, text, err)
		}
	}
	forks, err := a.Fork(ctx, nil)
	must.Do(t, err)
	for _, fork := range forks {
		must.Do(t, fork.Err)
		if _, err := fork.Sandbox.Commands.Run(ctx, "echo a fork >/data/fork", nil); err != nil {
			t.Error(err)
		}
		if err := fork.Sandbox.Close(); err != nil {
			t.Error(err)
		}
	}
	if text, err := b.Files.ReadText(ctx, "/twice/fork", nil); text != "a fork\n" || err != nil {
		t.Errorf("of a fork: got %q and error %v", text, err)
	}
	if err := errors.Join(a.Close(), b.Close(), client.Volumes.Delete(ctx, "data")); err != nil {
		t.Error(err)
	}
}

// TestVolumeLarge copies a large file in both directions.
func TestVolumeLarge(t *testing.T) {
	t.Parallel()
	_, _, volume := volumeCloud(t)
	const size = 32 << 20
	must.Do(t, volume.WriteFrom(t.Context(), "large", io.LimitReader(zeros{}, size), nil))
	r, err := volume.Open(t.Context(), "large")
	must.Do(t, err)
	n, err := io.Copy(io.Discard, r)
	if err = errors.Join(err, r.Close()); n != size || err != nil {
		t.Errorf("got %d bytes and error %v, want %d", n, err, size)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestVolumeDirs copies a directory into a volume and out again, with its modes, and
// checks that files that cannot be copied are reported.
func TestVolumeDirs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, _, volume := volumeCloud(t)
	from, to := t.TempDir(), t.TempDir()
	must.Do(t, errors.Join(
		os.MkdirAll(filepath.Join(from, "sub", "closed"), 0o755),
		os.WriteFile(filepath.Join(from, "sub", "closed", "program"), []byte("#!/bin/sh\n"), 0o755), //nolint:gosec // a program
		os.WriteFile(filepath.Join(from, "left"), []byte("out"), 0o600),
		os.WriteFile(filepath.Join(from, "large"), make([]byte, 5<<20), 0o600),
		os.Symlink("large", filepath.Join(from, "link")),
		os.Chmod(filepath.Join(from, "sub", "closed"), 0o500), //nolint:gosec // a directory
	))
	restore := func(dir string) {
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "sub", "closed"), 0o700) }) //nolint:gosec // a directory
	}
	restore(from)
	restore(to)
	for range 2 { // the second time, all files exist
		var skipped []string
		must.Do(t, volume.UploadDir(ctx, from, "in/side", &sandbox.VolumeUploadDirParams{
			Exclude: func(name string, _ fs.DirEntry) bool { return name == "left" },
			Skipped: func(name, _ string) { skipped = append(skipped, name) },
		}))
		if got := strings.Join(skipped, " "); got != "link" {
			t.Errorf("left out: got %q, want the link", got)
		}
	}
	must.Do(t, volume.DownloadDir(ctx, "/in/side", to, nil))
	var got []string
	err := fs.WalkDir(os.DirFS(to), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if name != "." && err == nil {
			got = append(got, info.Mode().String()+" "+name)
		}
		return err
	})
	if want := "-rw------- large,drwxr-xr-x sub,dr-x------ sub/closed,-rwxr-xr-x sub/closed/program"; err != nil || strings.Join(got, ",") != want {
		t.Errorf("got %q and error %v, want %q", strings.Join(got, ","), err, want)
	}
	if err := volume.DownloadDir(ctx, "/in/side/large", to, nil); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("of a file: got error %v, want %v", err, syscall.ENOTDIR)
	}
	if err := volume.DownloadDir(ctx, "/", to, &sandbox.VolumeDownloadDirParams{MaxBytes: 1 << 20}); !errors.Is(err, sandbox.ErrTooLarge) {
		t.Errorf("more than allowed: got error %v, want %v", err, sandbox.ErrTooLarge)
	}
}
