// Command linux makes packages for Debian, Ubuntu, Fedora and related distributions from archives of a
// release: a .deb and a .rpm of each archive.
//
//	go run . -output DIR e2bctl_0.1.0_linux_amd64.tar.gz...
package main

import (
	"archive/tar"
	"compress/gzip"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // for nfpm.Get
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // for nfpm.Get
)

//go:embed e2bctl.service e2bctl.apparmor postinstall.sh preremove.sh
var own embed.FS

func main() {
	output := flag.String("output", "", "write the packages to `DIR`")
	flag.Parse()
	if *output == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "linux: want -output DIR and archives")
		os.Exit(1)
	}
	for _, archive := range flag.Args() {
		if err := pack(archive, *output); err != nil {
			fmt.Fprintf(os.Stderr, "linux: %s: %v\n", archive, err)
			os.Exit(1)
		}
	}
}

// places lists the files of a package. from is a pattern of names in the archive or in the directory of
// this program. to is the path in the package; a path that ends in a slash is a directory. packager is
// the only kind of package that gets the files; "" means all kinds.
var places = []struct{ from, to, packager string }{
	{"e2bctl", "/usr/bin/", ""},
	{"man/*.1", "/usr/share/man/man1/", ""},
	{"completions/e2bctl.bash", "/usr/share/bash-completion/completions/e2bctl", ""},
	{"completions/_e2bctl", "/usr/share/zsh/vendor-completions/", "deb"},
	{"completions/_e2bctl", "/usr/share/zsh/site-functions/", "rpm"},
	{"completions/e2bctl.fish", "/usr/share/fish/vendor_completions.d/", ""},
	{"LICENSE", "/usr/share/doc/e2bctl/", ""},
	{"NOTICES.txt", "/usr/share/doc/e2bctl/", ""},
	{"CHANGELOG.md", "/usr/share/doc/e2bctl/", ""},
	{"e2bctl.cdx.json", "/usr/share/doc/e2bctl/", ""},
	{"e2bctl.service", "/usr/lib/systemd/user/", ""},
	{"e2bctl.apparmor", "/usr/share/e2bctl/apparmor", ""},
}

// pack makes the packages from one archive.
func pack(archive, output string) (err error) {
	_, rest, _ := strings.Cut(strings.TrimSuffix(filepath.Base(archive), ".tar.gz"), "_")
	version, platform, _ := strings.Cut(rest, "_")
	architecture, found := strings.CutPrefix(platform, "linux_")
	if !found {
		return errors.New("want e2bctl_VERSION_linux_ARCHITECTURE.tar.gz")
	}
	dir, err := os.MkdirTemp("", "e2bctl-linux-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	at, err := extract(archive, dir)
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, own); err != nil {
		return err
	}
	contents, err := contentsOf(dir, at)
	if err != nil {
		return err
	}
	for _, packager := range []string{"deb", "rpm"} {
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: "e2bctl", Arch: architecture, Platform: "linux", Version: version, Release: "1", Section: "utils", Priority: "optional",
			Maintainer: "The authors of e2bctl", Homepage: "https://github.com/e2bctl/e2bctl", License: "Apache-2.0", MTime: at,
			Description: "E2B-style cloud sandboxes: a command, and a cloud of its own on this machine",
			Overridables: nfpm.Overridables{
				Contents: contents,
				Scripts:  nfpm.Scripts{PostInstall: filepath.Join(dir, "postinstall.sh"), PreRemove: filepath.Join(dir, "preremove.sh")},
				Deb:      nfpm.Deb{Compression: "xz"},
				RPM:      nfpm.RPM{Compression: "xz", BuildHost: "localhost", Group: "Development/Tools"},
			},
		})
		if err := write(info, packager, output); err != nil {
			return fmt.Errorf("the .%s: %w", packager, err)
		}
	}
	return nil
}

// write writes one package. If it fails, it leaves no file.
func write(info *nfpm.Info, packager, output string) error {
	p, err := nfpm.Get(packager)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, packager); err != nil {
		return err
	}
	to, err := os.Create(filepath.Join(output, p.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	if err := errors.Join(p.Package(info, to), to.Close()); err != nil {
		return errors.Join(err, os.Remove(to.Name()))
	}
	return nil
}

// contentsOf returns the files of a package, which are in dir.
func contentsOf(dir string, at time.Time) (files.Contents, error) {
	var contents files.Contents
	for _, place := range places {
		names, err := fs.Glob(os.DirFS(dir), place.from)
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("the archive has no %s", place.from)
		}
		for _, name := range names {
			to, mode := place.to, fs.FileMode(0o644)
			if strings.HasSuffix(to, "/") {
				to += path.Base(name)
			}
			if name == "e2bctl" {
				mode = 0o755
			}
			contents = append(contents, &files.Content{
				Source: filepath.Join(dir, name), Destination: to, Packager: place.packager,
				FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: at},
			})
		}
	}
	return contents, nil
}

// extract extracts an archive to dir. It removes the first directory from the names in the archive. It
// returns the modification time of the files.
func extract(archive, dir string) (at time.Time, err error) {
	from, err := os.Open(archive)
	if err != nil {
		return at, err
	}
	defer func() { _ = from.Close() }() // it was only read
	compressed, err := gzip.NewReader(from)
	if err != nil {
		return at, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return at, err
	}
	defer func() { _ = root.Close() }() // its files are closed
	for entries := tar.NewReader(compressed); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return at, nil
		}
		if err != nil {
			return at, err
		}
		_, name, _ := strings.Cut(header.Name, "/")
		if err := extractFile(root, name, entries); err != nil {
			return at, err
		}
		at = header.ModTime
	}
}

func extractFile(root *os.Root, name string, content io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	to, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, content)
	return errors.Join(err, to.Close())
}
