//go:build linux

package kubetest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/linuxprogram"
)

// Images for clusters. Bare contains only busybox. Every cluster has Bare, because the first
// container of each pod runs it. Python contains busybox, and bash and Python of this machine.
// Program contains busybox, and at [ProgramPath] the program that serves a sandbox from inside. Baked
// contains what Python and Program contain. Tests add all but Bare with [Cluster.AddImage].
const (
	Bare    = "e2bctl.test/bare:1"
	Python  = "e2bctl.test/python:1"
	Program = "e2bctl.test/program:1"
	Baked   = "e2bctl.test/baked:1"
)

// ProgramPath is the path of our program in the images [Program] and [Baked].
const ProgramPath = guest.Program

// archive returns an image in the format of `docker save`.
func archive(ctx context.Context, image string) ([]byte, error) {
	var layers [][]byte
	add := func(layer []byte, err error) error {
		layers = append(layers, layer)
		return err
	}
	var err error
	switch image {
	case Bare:
		err = add(dockertest.Files(dockertest.Bare))
	case Python:
		err = add(dockertest.Files(dockertest.Image))
	case Program, Baked:
		files := dockertest.Bare
		if image == Baked {
			files = dockertest.Image
		}
		if err = add(dockertest.Files(files)); err == nil {
			err = add(programLayer(ctx))
		}
	default:
		err = fmt.Errorf("there is no such image")
	}
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", image, err)
	}
	type object = map[string]any
	var sums, names []string
	contents := files{}
	for i, layer := range layers {
		sum := sha256.Sum256(layer)
		sums = append(sums, "sha256:"+hex.EncodeToString(sum[:]))
		names = append(names, fmt.Sprintf("layer%d.tar", i))
		contents[names[i]] = layer
	}
	contents["config.json"] = encode(object{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": object{"Cmd": []string{"/bin/busybox", "sleep", "2147483647"}, "Env": []string{"PATH=/usr/bin:/bin"}},
		"rootfs": object{"type": "layers", "diff_ids": sums},
	})
	contents["manifest.json"] = encode([]object{{"Config": "config.json", "RepoTags": []string{image}, "Layers": names}})
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	for name, content := range contents {
		if err := addFile(w, name, content, 0o644); err != nil {
			return nil, err
		}
	}
	return data.Bytes(), w.Close()
}

// programLayer returns our program as a layer.
func programLayer(ctx context.Context) ([]byte, error) {
	path, err := linuxprogram.Make(ctx, io.Discard, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	if err := addFile(w, ProgramPath[1:], program, 0o755); err != nil {
		return nil, err
	}
	return data.Bytes(), w.Close()
}

func addFile(w *tar.Writer, name string, content []byte, mode int64) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: mode}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
