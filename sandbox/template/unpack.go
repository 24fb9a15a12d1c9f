package template

import (
	"archive/tar"
	"bufio"
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

// unpackDir is the directory in which ADD stores an archive before unpacking it.
const unpackDir = "/tmp/.e2bctl-add"

// unpacked returns the steps of an ADD. For an archive, the steps copy the archive and unpack it.
// Any service supports these steps. For other files, unpacked returns the step itself.
func (s *source) unpacked(add step, files []file) ([]step, error) {
	var archive, flags string
	for _, f := range files {
		is, by, err := s.isArchive(f)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f.name, err)
		}
		if is {
			archive, flags = f.packed(), by
		}
	}
	// Archives inside a directory are never unpacked.
	if archive == "" || len(files) > 1 && !strings.ContainsAny(add.Args[0], "*?[") {
		return []step{add}, nil
	}
	if len(files) > 1 {
		return nil, fmt.Errorf("ADD %s: it matches several files, and %s is an archive: name each", add.Args[0], archive)
	}
	if add.owned || add.Args[3] != "" {
		return nil, fmt.Errorf("ADD %s: --chown and --chmod of an archive are not supported: change what was unpacked with RUN", add.Args[0])
	}
	target := add.Args[1]
	first := add
	first.Args = []string{add.Args[0], unpackDir + "/", "root", ""}
	to := quoteExpanding(target)
	second := step{BuildStep: api.BuildStep{Type: "RUN", Force: add.Force, Args: []string{
		fmt.Sprintf("mkdir -p -- %s && tar %s %s -C %s && rm -r %s", to, flags, shell.Quote(unpackDir+"/"+path.Base(archive)), to, unpackDir), "root",
	}}}
	return []step{first, second}, nil
}

// quoteExpanding quotes a word for a shell, but lets the shell replace the variables in the word. The
// word is the target of an ADD, and services also replace the variables in the target of a COPY.
func quoteExpanding(word string) string {
	if !strings.Contains(word, "$") {
		return shell.Quote(word)
	}
	return `"` + strings.NewReplacer(`"`, `\"`, "`", "\\`", `$(`, `\$(`).Replace(word) + `"`
}

// compressed lists the formats of archives, with their first bytes and the flags of tar,
// because not every tar detects the format. Entries with suffixes are recognized by the suffix,
// because this package cannot decompress them.
var compressed = []struct {
	begins, flags string
	open          func(io.Reader) (io.Reader, error)
	suffixes      []string
}{
	{begins: "\x1f\x8b", flags: "-xzf", open: func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{begins: "BZh", flags: "-xjf", open: func(r io.Reader) (io.Reader, error) { return bzip2.NewReader(r), nil }},
	{begins: "\xfd7zXZ\x00", flags: "-xJf", suffixes: []string{".tar.xz", ".txz"}},
	{begins: "\x28\xb5\x2f\xfd", flags: "--zstd -xf", suffixes: []string{".tar.zst", ".tzst"}},
}

// isArchive reports whether a file is an archive that ADD unpacks: a tar archive, compressed or
// not. It also returns the flags of tar. As in Docker, the name does not matter.
func (s *source) isArchive(f file) (is bool, flags string, err error) {
	if !f.info.Mode().IsRegular() {
		return false, "", nil
	}
	opened, err := s.root.Open(f.name)
	if err != nil {
		return false, "", err
	}
	defer opened.Close()
	content := bufio.NewReader(opened)
	head, err := content.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, "", err
	}
	for _, format := range compressed {
		switch {
		case !strings.HasPrefix(string(head), format.begins):
			continue
		case format.open == nil:
			return slices.ContainsFunc(format.suffixes, func(suffix string) bool { return strings.HasSuffix(f.name, suffix) }), format.flags, nil
		}
		plain, err := format.open(content)
		return err == nil && beginsTar(plain), format.flags, nil
	}
	return beginsTar(content), "-xf", nil
}

func beginsTar(r io.Reader) bool {
	_, err := tar.NewReader(r).Next()
	return err == nil
}
