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
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// maxListing bounds one answer about files: a listing of some 200,000.
const maxListing = 64 << 20

// maxListed is how many messages there may be in such an answer: an entry is one,
// its time and each of its metadata are more.
const maxListed = 1_000_000

// FileType is what a file is.
type FileType string

// Types of files. A device, a pipe or a socket has none.
const (
	TypeFile    FileType = "file"
	TypeDir     FileType = "dir"
	TypeSymlink FileType = "symlink"
)

// FileInfo describes a file of a sandbox; of a symbolic link, the link itself.
type FileInfo struct {
	// Name is the last part of the path, Path the whole, as the daemon knows it.
	Name, Path string
	// Type is what it is.
	Type FileType
	// Size is its length in bytes, of a symbolic link that of its text.
	Size int64
	// Mode has its permissions and, in the upper bits, what it is.
	Mode fs.FileMode
	// Permissions are the mode as the daemon writes it: "-rw-r--r--", and of
	// a symbolic link "Lrwxrwxrwx".
	Permissions string
	// Owner and Group are names, or numbers where there are none.
	Owner, Group string
	// ModTime is when its content changed.
	ModTime time.Time
	// SymlinkTarget is where a symbolic link leads in the end, an absolute path;
	// of a broken one it is the link's own.
	SymlinkTarget string
	// TargetType is what a symbolic link leads to.
	TargetType FileType
	// Metadata are the labels it was written with.
	Metadata map[string]string
}

// IsDir tells whether it is a directory.
func (i *FileInfo) IsDir() bool { return i.Type == TypeDir }

// PathParams say whose a path is.
type PathParams struct {
	// User is whose home relative paths start at, and who owns directories that
	// are made; empty means the sandbox's default user.
	User string
}

// ListFilesParams say what to list.
type ListFilesParams struct {
	// User is whose home relative paths start at; empty means the default user.
	User string
	// Depth is how many levels to list; 0 means 1, the directory alone. More
	// than 1 needs a daemon of 0.1.6.
	Depth int
}

func newFilesystemClient(sb *Sandbox) filesystemconnect.FilesystemClient {
	return filesystemconnect.NewFilesystemClient(rpcClient{portClient{sb, protocol.PortEnvd}}, sb.baseURL(protocol.PortEnvd),
		connect.WithInterceptors(sb.client.interceptors...), connect.WithReadMaxBytes(maxListing), plain, boundedProto(maxListed))
}

// List gives what is in a directory, in order of names, each directory before
// what is in it. Symbolic links are shown, and not descended into.
func (f *Files) List(ctx context.Context, path string, p *ListFilesParams) ([]*FileInfo, error) {
	p = cmp.Or(p, &ListFilesParams{})
	depth := max(p.Depth, 1)
	switch {
	case p.Depth < 0:
		return nil, f.pathError("list", path, invalid(fmt.Sprintf("a depth of %d", p.Depth)))
	case p.Depth > 1<<20:
		depth = 1 << 20 // no path has more
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
	infos := make([]*FileInfo, len(response.GetEntries()))
	for i, entry := range response.GetEntries() {
		// Callers join names to paths of their own machine.
		if name := entry.GetName(); name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			return nil, f.pathError("list", path, fmt.Errorf("the daemon tells of a file named %q, which is no name", clip.Text(name, 256)))
		}
		infos[i] = newFileInfo(entry)
	}
	return infos, nil
}

// Stat describes what is at a path. It does not follow a symbolic link there.
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

// Exists reports whether there is anything at a path, a broken link included. Below a
// file there is nothing.
func (f *Files) Exists(ctx context.Context, path string, p *PathParams) (bool, error) {
	_, err := f.Stat(ctx, path, p)
	if errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	// Another 404 may be that of a proxy, which knows nothing of files.
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == connect.CodeNotFound.String() {
		return false, nil
	}
	return err == nil, err
}

// MakeDir makes a directory and its parents. Like [os.MkdirAll] it is content
// with one that is there already.
func (f *Files) MakeDir(ctx context.Context, path string, p *PathParams) error {
	_, err := call(ctx, f, "mkdir", path, userOf(p), f.rpc.MakeDir, &filesystem.MakeDirRequest{Path: path})
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == connect.CodeAlreadyExists.String() {
		return nil
	}
	return err
}

// Rename moves a file or directory, making the directories of its new name. A
// file that has that name is replaced. It does not move between file systems.
func (f *Files) Rename(ctx context.Context, from, to string, p *PathParams) error {
	if err := rpcPath(to); err != nil {
		return f.pathError("rename", to, err)
	}
	_, err := call(ctx, f, "rename", from, userOf(p), f.rpc.Move, &filesystem.MoveRequest{Source: from, Destination: to})
	return err
}

// Remove removes a file, or a directory with all that is in it. Like
// [os.RemoveAll] it is content with what is not there.
func (f *Files) Remove(ctx context.Context, path string, p *PathParams) error {
	_, err := call(ctx, f, "remove", path, userOf(p), f.rpc.Remove, &filesystem.RemoveRequest{Path: path})
	return err
}

func userOf(p *PathParams) string { return cmp.Or(p, &PathParams{}).User }

// call makes one call about a path.
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

// rpcPath tells whether a call can carry a path.
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

// needs refuses what the sandbox's daemon is too old for.
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
	if e.ModifiedTime != nil { // before 0.2.2 there is none
		info.ModTime = e.GetModifiedTime().AsTime()
	}
	info.Mode = fileMode(info.Permissions, e)
	// On the wire a link has the type of what it leads to.
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

// modeLetters are those of [fs.FileMode.String], the highest bit first.
const modeLetters = "dalTLDpSugct?"

// fileMode reads the text of a mode, which alone has all of it; where there is
// none, before 0.2.2, it makes do with the permission bits.
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
