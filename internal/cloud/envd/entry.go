//go:build linux

package envd

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
)

// entry describes the file at path. For a symbolic link, type and mode describe the target, and all
// other fields describe the link. A broken link has no type.
func (s *Server) entry(path string) (*filesystem.EntryInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	entry := &filesystem.EntryInfo{
		Name:         text(filepath.Base(path)),
		Path:         text(path),
		Size:         info.Size(),
		Permissions:  info.Mode().String(),
		ModifiedTime: timestamppb.New(info.ModTime()),
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		entry.Owner = text(s.users.owner(stat.Uid))
		entry.Group = text(s.users.ownerGroup(stat.Gid))
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		entry.Type, entry.Mode = typeOf(info), uint32(info.Mode().Perm())
		entry.Metadata = readMetadata(path, info)
		return entry, nil
	}
	entry.SymlinkTarget = proto.String(entry.Path)
	if target, err := filepath.EvalSymlinks(path); err == nil {
		entry.SymlinkTarget = proto.String(text(target))
	}
	if info, err := os.Stat(path); err == nil {
		entry.Type, entry.Mode = typeOf(info), uint32(info.Mode().Perm())
	}
	return entry, nil
}

// text replaces the invalid bytes of a name by U+FFFD, because strings on the wire must be valid
// UTF-8. Without the replacement, a single file with an invalid name would prevent the listing of
// its whole directory.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// entryIfAny describes the file at path like [Server.entry]. It returns nil if the file no longer
// exists.
func (s *Server) entryIfAny(path string) *filesystem.EntryInfo {
	entry, err := s.entry(path)
	if err != nil {
		return nil
	}
	return entry
}

func typeOf(info fs.FileInfo) filesystem.FileType {
	switch {
	case info.Mode().IsRegular():
		return filesystem.FileType_FILE_TYPE_FILE
	case info.IsDir():
		return filesystem.FileType_FILE_TYPE_DIRECTORY
	}
	return filesystem.FileType_FILE_TYPE_UNSPECIFIED
}
