package template

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/shell"
)

// unpackDir is where ADD has an archive until it is unpacked.
const unpackDir = "/tmp/.e2bctl-add"

// unpacked returns the steps of ADD: those that copy an archive and unpack it, as any
// service can, or the step itself if it adds something else.
func (s *source) unpacked(add step, files []file) ([]step, error) {
	var archive string
	for _, f := range files {
		is, err := s.isArchive(f)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f.name, err)
		}
		if is {
			archive = f.packed()
		}
	}
	// What is in a directory is never unpacked.
	if archive == "" || len(files) > 1 && !strings.ContainsAny(add.Args[0], "*?[") {
		return []step{add}, nil
	}
	if len(files) > 1 {
		return nil, fmt.Errorf("ADD %s: it matches several files, and %s is an archive: name each", add.Args[0], archive)
	}
	if add.Args[2] != "" || add.Args[3] != "" {
		return nil, fmt.Errorf("ADD %s: --chown and --chmod of an archive are not supported: change what was unpacked with RUN", add.Args[0])
	}
	target := add.Args[1]
	first := add
	first.Args = []string{add.Args[0], unpackDir + "/", "root", ""}
	to := quoteExpanding(target)
	second := step{BuildStep: api.BuildStep{Type: "RUN", Force: add.Force, Args: []string{
		fmt.Sprintf("mkdir -p -- %s && tar -xf %s -C %s && rm -r %s", to, shell.Quote(unpackDir+"/"+path.Base(archive)), to, unpackDir), "root",
	}}}
	return []step{first, second}, nil
}

// quoteExpanding quotes a word for a shell that replaces the variables in it, as services do
// in targets.
func quoteExpanding(word string) string {
	if !strings.Contains(word, "$") {
		return shell.Quote(word)
	}
	return `"` + strings.NewReplacer(`"`, `\"`, "`", "\\`", `$(`, `\$(`).Replace(word) + `"`
}

// Beginnings of files whose archives only their names tell, since nothing here unpacks them.
var otherArchives = []struct {
	begins   []byte
	suffixes []string
}{
	{[]byte("\xfd7zXZ\x00"), []string{".tar.xz", ".txz"}},
	{[]byte("\x28\xb5\x2f\xfd"), []string{".tar.zst", ".tzst"}},
}

// isArchive reports whether a file is an archive that ADD unpacks: one of tar, also
// compressed. As in Docker, what it is called does not matter.
func (s *source) isArchive(f file) (bool, error) {
	if !f.info.Mode().IsRegular() {
		return false, nil
	}
	opened, err := s.root.Open(f.name)
	if err != nil {
		return false, err
	}
	defer opened.Close()
	content := bufio.NewReader(opened)
	head, err := content.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	for _, other := range otherArchives {
		if bytes.HasPrefix(head, other.begins) {
			return slices.ContainsFunc(other.suffixes, func(suffix string) bool { return strings.HasSuffix(f.name, suffix) }), nil
		}
	}
	return beginsTar(plain(content, head)), nil
}

// plain returns what is in a compressed file.
func plain(content io.Reader, head []byte) io.Reader {
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		if zipped, err := gzip.NewReader(content); err == nil {
			return zipped
		}
	case bytes.HasPrefix(head, []byte("BZh")):
		return bzip2.NewReader(content)
	}
	return content
}

func beginsTar(r io.Reader) bool {
	_, err := tar.NewReader(r).Next()
	return err == nil
}
