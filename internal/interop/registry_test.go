package interop

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// wellKnown are the images for which the builders of the SDKs have methods, and one
// with which Dockerfiles of the documentation begin.
var wellKnown = []string{
	"library/debian:stable", "library/ubuntu:latest", "library/fedora:44", "library/alpine:3.24", "library/archlinux:latest",
	"library/python:3", "library/python:3.10", "library/node:lts", "oven/bun:latest",
}

// startMirror serves images under the names of well-known ones until all tests have
// ended, and returns its URL. The images have nothing but busybox, and their name in
// /name.
func startMirror() (string, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return "", fmt.Errorf("%w: busybox-static: %w", errLacking, err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	atEnd(func() error {
		server.Close()
		return nil
	})
	for _, image := range wellKnown {
		if err := push(strings.TrimPrefix(server.URL, "http://")+"/"+image, image, program); err != nil {
			return "", err
		}
	}
	return server.URL, nil
}

func push(reference, called string, busybox []byte) error {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	var err error
	add := func(h *tar.Header, text string) {
		h.Size = int64(len(text))
		err = errors.Join(err, w.WriteHeader(h))
		_, failed := io.WriteString(w, text)
		err = errors.Join(err, failed)
	}
	add(&tar.Header{Name: "name", Mode: 0o644}, called+"\n")
	add(&tar.Header{Name: "bin/busybox", Mode: 0o755}, string(busybox))
	for _, program := range []string{"sh", "cat", "echo", "id", "sleep", "test"} {
		add(&tar.Header{Name: "bin/" + program, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, "")
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: v1.Config{Env: []string{"FROM=" + called}}})
	if err != nil {
		return err
	}
	files, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		return err
	}
	if image, err = mutate.AppendLayers(image, files); err != nil {
		return err
	}
	to, err := name.ParseReference(reference, name.Insecure)
	if err != nil {
		return err
	}
	return remote.Write(to, image)
}
