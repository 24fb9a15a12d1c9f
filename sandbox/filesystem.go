package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/boundproto"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// maxListing limits the bytes of one answer about files: enough for about 200,000 files.
const maxListing = 64 << 20

// maxListed limits the number of messages in one answer about files. Each entry is one message. Its time
// and each label of its metadata are further messages.
const maxListed = 1_000_000

// FileType is the type of a file.
type FileType string

// These are the types of files. A device, a pipe or a socket has an empty type.
const (
	TypeFile    FileType = "file"
	TypeDir     FileType = "dir"
	TypeSymlink FileType = "symlink"
)

// FileInfo describes a file of a sandbox; for a symbolic link, it describes the
// link itself.
type FileInfo struct {
	// Name is the last part of the path. Path is the whole path, as the daemon reports it.
	Name, Path string
	// Type is the type of the file.
	Type FileType
	// Size is the length of the file in bytes. For a symbolic link it is the length of the
	// target's path.
	Size int64
	// Mode contains the permissions and, in the upper bits, the type.
	Mode fs.FileMode
	// Permissions is the mode in the text form of the daemon: "-rw-r--r--", or "Lrwxrwxrwx" for
	// a symbolic link.
	Permissions string
	// Owner and Group are the names of owner and group, or their numbers if they have no names.
	Owner, Group string
	// ModTime is the time of the last change to the content.
	ModTime time.Time
	// SymlinkTarget is the final target of a symbolic link, as an absolute path. For a broken
	// link it is the path of the link itself.
	SymlinkTarget string
	// TargetType is the type of the final target of a symbolic link.
	TargetType FileType
	// Metadata contains the labels with which the file was written.
	Metadata map[string]string
}

// IsDir reports whether the file is a directory.
func (i FileInfo) IsDir() bool { return i.Type == TypeDir }

// PathParams sets the user for a path.
type PathParams struct {
	// User is the owner of new directories, and relative paths begin at this user's home. Empty
	// means the sandbox's default user.
	User string
}

// ListFilesParams sets the user and the depth of a list.
type ListFilesParams struct {
	// User is the user at whose home relative paths begin; empty means the default user.
	User string
	// MaxDepth limits the levels to list. Zero means 1, which lists only the entries of the directory
	// itself. More than 1 needs envd 0.1.6.
	MaxDepth int
}

func newFilesystemClient(sb *Sandbox) filesystemconnect.FilesystemClient {
	return filesystemconnect.NewFilesystemClient(rpcClient{portClient{sb, protocol.PortEnvd}}, sb.baseURL(protocol.PortEnvd),
		connect.WithInterceptors(sb.client.interceptors...), connect.WithReadMaxBytes(maxListing), plain, boundproto.Limit(maxListed))
}

// List returns the content of a directory, ordered by name, each directory before
// its content. Symbolic links are listed but not followed.
func (f *Files) List(ctx context.Context, path string, p *ListFilesParams) ([]FileInfo, error) {
	p = cmp.Or(p, &ListFilesParams{})
	depth := max(p.MaxDepth, 1)
	switch {
	case p.MaxDepth < 0:
		return nil, f.pathError("list", path, invalid(fmt.Sprintf("a depth of %d", p.MaxDepth)))
	case p.MaxDepth > 1<<20:
		depth = 1 << 20 // no path has more levels
	}
	if depth > 1 {
		if err := f.sb.needs("listing more than one level", 0, 1, 6); err != nil {
			return nil, f.pathError("list", path, err)
		}
	}
	response, err := call(ctx, f, "list", path, p.User, f.rpc.ListDir, &filesystem.ListDirRequest{Path: path, Depth: uint32(depth)})
	if err != nil {
		return nil, err
	}
	infos := make([]FileInfo, len(response.GetEntries()))
	for i, entry := range response.GetEntries() {
		// Callers join these names to paths on their own machine.
		if name := entry.GetName(); name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			return nil, f.pathError("list", path, fmt.Errorf("the daemon reports a file named %q, which is not a valid name", clip.Text(name, 256)))
		}
		infos[i] = *newFileInfo(entry)
	}
	return infos, nil
}

// Stat describes the file at a path. It does not follow a symbolic link at the end of the path.
func (f *Files) Stat(ctx context.Context, path string, p *PathParams) (*FileInfo, error) {
	response, err := call(ctx, f, "stat", path, userOf(p), f.rpc.Stat, &filesystem.StatRequest{Path: path})
	if err != nil {
		return nil, err
	}
	if response.GetEntry() == nil {
		return nil, f.pathError("stat", path, errors.New("the daemon's answer has no entry"))
	}
	return newFileInfo(response.GetEntry()), nil
}

// Exists reports whether a file of any kind is at a path, even a broken link. A path below a
// file does not exist.
func (f *Files) Exists(ctx context.Context, path string, p *PathParams) (bool, error) {
	_, err := f.Stat(ctx, path, p)
	if errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	// A 404 with another code may come from a proxy, which knows nothing about files.
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == connect.CodeNotFound.String() {
		return false, nil
	}
	return err == nil, err
}

// MakeDir creates a directory and its parents. Like [os.MkdirAll] it does nothing
// if the directory exists.
func (f *Files) MakeDir(ctx context.Context, path string, p *PathParams) error {
	_, err := call(ctx, f, "mkdir", path, userOf(p), f.rpc.MakeDir, &filesystem.MakeDirRequest{Path: path})
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == connect.CodeAlreadyExists.String() {
		return nil
	}
	return err
}

// Rename moves a file or directory, and creates the parent directories of its new path. It
// replaces an existing file at the new path. It does not move between file systems.
func (f *Files) Rename(ctx context.Context, from, to string, p *PathParams) error {
	if err := rpcPath(to); err != nil {
		return f.pathError("rename", to, err)
	}
	_, err := call(ctx, f, "rename", from, userOf(p), f.rpc.Move, &filesystem.MoveRequest{Source: from, Destination: to})
	return err
}

// Remove removes a file, or a directory with everything in it. Like
// [os.RemoveAll] it does nothing if the path does not exist.
func (f *Files) Remove(ctx context.Context, path string, p *PathParams) error {
	_, err := call(ctx, f, "remove", path, userOf(p), f.rpc.Remove, &filesystem.RemoveRequest{Path: path})
	return err
}

func userOf(p *PathParams) string { return cmp.Or(p, &PathParams{}).User }

// call makes one RPC about a path.
func call[Q, A any](ctx context.Context, f *Files, op, path, user string, method func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), message *Q) (*A, error) {
	if err := rpcPath(path); err != nil {
		return nil, f.pathError(op, path, err)
	}
	ctx, end, err := f.sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	request := connect.NewRequest(message)
	asUser(request.Header(), user)
	response, err := method(ctx, request)
	if err != nil {
		return nil, f.failed(ctx, op, path, rpcFailure(err))
	}
	return response.Msg, nil
}

// rpcPath returns an error for a path that an RPC cannot transmit.
func rpcPath(path string) error {
	if !utf8.ValidString(path) {
		return invalid("the daemon's protocol carries names in UTF-8 only: use a command, or Read and Write")
	}
	if strings.ContainsRune(path, 0) {
		return invalid("a path has no zero byte")
	}
	return nil
}

func rpcFailure(err error) error {
	if e, ok := errors.AsType[*connect.Error](err); ok && connect.IsWireError(e) {
		return wireError("/filesystem.Filesystem", e)
	}
	return err
}

// needs returns an error if the sandbox's daemon is too old for a feature.
func (sb *Sandbox) needs(feature string, major, minor, patch int) error {
	if !sb.daemonBefore(major, minor, patch) {
		return nil
	}
	return fmt.Errorf("%w: %s needs version %d.%d.%d of the sandbox's daemon, which is %s: rebuild the template",
		errors.ErrUnsupported, feature, major, minor, patch, clip.Text(sb.remote.EnvdVersion, 32))
}

func (sb *Sandbox) daemonBefore(major, minor, patch int) bool {
	return olderThan(sb.remote.EnvdVersion, major, minor, patch)
}

func newFileInfo(e *filesystem.EntryInfo) *FileInfo {
	info := &FileInfo{
		Name: e.GetName(), Path: e.GetPath(), Type: fileType(e.GetType()), Size: e.GetSize(),
		Permissions: e.GetPermissions(), Owner: e.GetOwner(), Group: e.GetGroup(),
		Metadata: e.GetMetadata(),
	}
	if e.ModifiedTime != nil { // daemons before 0.2.2 send no time
		info.ModTime = e.GetModifiedTime().AsTime()
	}
	info.Mode = fileMode(info.Permissions, e)
	// The daemon reports the type of a link's target as the type of the link.
	if e.SymlinkTarget != nil {
		info.Type, info.TargetType, info.SymlinkTarget = TypeSymlink, info.Type, e.GetSymlinkTarget()
		info.Mode |= fs.ModeSymlink
	}
	return info
}

func fileType(t filesystem.FileType) FileType {
	switch t {
	case filesystem.FileType_FILE_TYPE_FILE:
		return TypeFile
	case filesystem.FileType_FILE_TYPE_DIRECTORY:
		return TypeDir
	case filesystem.FileType_FILE_TYPE_SYMLINK:
		return TypeSymlink
	}
	return ""
}

// modeLetters are the letters of [fs.FileMode.String], in the order of their bits, the highest bit
// first.
const modeLetters = "dalTLDpSugct?"

// fileMode parses the text of a mode, because only the text contains all bits of the mode. Daemons
// before 0.2.2 send no text; for them fileMode uses the permission bits.
func fileMode(text string, e *filesystem.EntryInfo) fs.FileMode {
	const bits = "rwxrwxrwx"
	mode := fs.FileMode(e.GetMode()).Perm()
	if e.GetType() == filesystem.FileType_FILE_TYPE_DIRECTORY && e.SymlinkTarget == nil {
		mode |= fs.ModeDir
	}
	split := len(text) - len(bits)
	if split < 1 {
		return mode
	}
	var read fs.FileMode
	for i := range bits {
		switch text[split+i] {
		case bits[i]:
			read |= 1 << (len(bits) - 1 - i)
		case '-':
		default:
			return mode
		}
	}
	for _, letter := range text[:split] {
		bit := strings.IndexRune(modeLetters, letter)
		switch {
		case bit >= 0:
			read |= 1 << (31 - bit)
		case letter != '-':
			return mode
		}
	}
	return read
}
