//go:build linux

package envd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	metadataHeader = "X-Metadata-"
	metadataPrefix = "user.e2b." // prefix of the names of extended attributes

	maxMetadataKey = 246  // maximum length of an attribute's name after the prefix
	maxMetadata    = 4096 // maximum bytes of prefixes, keys and values together
)

// parseMetadata returns the metadata of an upload from the headers of the request.
func parseMetadata(header http.Header) (map[string]string, error) {
	metadata := make(map[string]string)
	size := 0
	for name, values := range header {
		key, ok := strings.CutPrefix(name, metadataHeader)
		if !ok || key == "" || len(values) == 0 {
			continue // as in envd, a header without a key is ignored
		}
		key = strings.ToLower(key)
		value := values[0]
		switch {
		case len(key) > maxMetadataKey:
			return nil, fmt.Errorf("invalid metadata: a key has at most %d bytes, not %d", maxMetadataKey, len(key))
		case !printable(key):
			return nil, fmt.Errorf("invalid metadata: the key %q is not printable ASCII", key)
		case !printable(value):
			return nil, fmt.Errorf("invalid metadata: the value of %q is not printable ASCII", key)
		}
		if size += len(metadataPrefix) + len(key) + len(value); size > maxMetadata {
			return nil, fmt.Errorf("invalid metadata: more than %d bytes in all", maxMetadata)
		}
		metadata[key] = value
	}
	return metadata, nil
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e }) < 0
}

// readMetadata returns the metadata of a file or directory. It returns nil if the file has no
// metadata, or if the filesystem does not support extended attributes.
func readMetadata(path string, info fs.FileInfo) map[string]string {
	if !info.Mode().IsRegular() && !info.IsDir() {
		return nil
	}
	var metadata map[string]string
	for _, name := range attributes(func(buf []byte) (int, error) { return unix.Llistxattr(path, buf) }) {
		value := make([]byte, maxMetadata)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil || !utf8.Valid(value[:n]) || !utf8.ValidString(name) {
			continue
		}
		if metadata == nil {
			metadata = make(map[string]string)
		}
		metadata[strings.TrimPrefix(name, metadataPrefix)] = string(value[:n])
	}
	return metadata
}

// writeMetadata replaces the metadata of f. It returns the metadata that was stored, which is
// empty if the filesystem does not support extended attributes.
func writeMetadata(f *os.File, metadata map[string]string) (map[string]string, error) {
	fd := int(f.Fd())
	for _, name := range attributes(func(buf []byte) (int, error) { return unix.Flistxattr(fd, buf) }) {
		if _, stays := metadata[strings.TrimPrefix(name, metadataPrefix)]; !stays {
			if err := unix.Fremovexattr(fd, name); err != nil && !errors.Is(err, unix.ENODATA) {
				return nil, fmt.Errorf("remove metadata: %w", err)
			}
		}
	}
	for key, value := range metadata {
		switch err := unix.Fsetxattr(fd, metadataPrefix+key, []byte(value), 0); {
		case errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.EPERM):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("write metadata: %w", err)
		}
	}
	return metadata, nil
}

// attributes returns the names of the extended attributes that are metadata. list fills a
// buffer with the names of all attributes.
func attributes(list func([]byte) (int, error)) []string {
	size, err := list(nil)
	if err != nil || size == 0 {
		return nil
	}
	buf := make([]byte, size)
	if size, err = list(buf); err != nil {
		return nil // attributes were added meanwhile: answer as if there were none
	}
	var names []string
	for name := range bytes.SplitSeq(buf[:size], []byte{0}) {
		if bytes.HasPrefix(name, []byte(metadataPrefix)) {
			names = append(names, string(name))
		}
	}
	return names
}
