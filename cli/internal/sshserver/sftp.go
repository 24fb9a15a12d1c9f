package sshserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pkg/sftp"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/sandbox"
)

// sftp serves the files of the sandbox.
func (c *session) sftp(ctx context.Context) (exit, error) {
	home, err := c.Sandbox.Files.Stat(ctx, ".", &sandbox.PathParams{User: c.user})
	if err != nil {
		return exit{}, err
	}
	f := &files{server: c.server, life: ctx, home: home.Path, writing: map[string]*writer{}}
	server := sftp.NewRequestServer(c.channel, sftp.Handlers{FileGet: f, FilePut: f, FileCmd: f, FileList: f}, sftp.WithStartDirectory(home.Path))
	if err := server.Serve(); err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		return exit{}, err
	}
	return exit{}, nil
}

// files answers the requests of one sftp client. The content of files, lists and descriptions come
// from the service, which reads and writes with the rights of root. All other requests are commands
// of the session's user.
type files struct {
	*server
	life context.Context //nolint:containedctx // the context of the session, which is no call
	home string

	mu      sync.Mutex
	writing map[string]*writer // the files that are being written, by path
	open    int                // the files that are open
}

// maxOpen bounds the files that a client has open at once, because each of them keeps some bytes.
const maxOpen = 100

// opens counts a file that is opened, or refuses it.
func (f *files) opens() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == maxOpen {
		return fmt.Errorf("at most %d files can be open at once", maxOpen)
	}
	f.open++
	return nil
}

func (f *files) closed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open--
}

var (
	_ sftp.PosixRenameFileCmder = (*files)(nil)
	_ sftp.StatVFSFileCmder     = (*files)(nil)
	_ sftp.LstatFileLister      = (*files)(nil)
	_ sftp.ReadlinkFileLister   = (*files)(nil)
	_ sftp.NameLookupFileLister = (*files)(nil)
)

// refused returns an error for the client. sftp has few statuses; the text is only shown by some
// clients.
func (f *files) refused(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return sftp.ErrSSHFxNoSuchFile
	case errors.Is(err, fs.ErrPermission):
		return sftp.ErrSSHFxPermissionDenied
	case errors.Is(err, errors.ErrUnsupported):
		return sftp.ErrSSHFxOpUnsupported
	}
	return errors.New(f.broken(err))
}

// run runs a program as the session's user, and returns its output.
func (f *files) run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := f.Sandbox.Commands.Output(ctx, name, args, f.params())
	return string(out), programError(err)
}

func (f *files) params() *sandbox.CommandParams {
	return &sandbox.CommandParams{User: f.user, Cwd: "/", Envs: map[string]string{"LC_ALL": "C"}}
}

// programError returns the error of a program of coreutils as the error of the call that failed.
func programError(err error) error {
	ended, ok := errors.AsType[*sandbox.ExitError](err)
	if !ok {
		return err
	}
	for _, known := range []error{syscall.ENOENT, syscall.EACCES, syscall.EPERM} {
		if strings.Contains(strings.ToLower(ended.Result.Stderr), known.Error()) {
			return known
		}
	}
	return errors.New(clip.LastLine(ended.Result.Stderr, 256))
}

// Filecmd carries out the requests that change files other than by writing to them.
func (f *files) Filecmd(r *sftp.Request) error {
	ctx := r.Context()
	var err error
	switch r.Method {
	case "Setstat":
		return f.setstat(ctx, r)
	case "Rename": // of this version of the protocol: it must not replace a file
		if _, err = f.run(ctx, "test", "!", "-e", r.Target); err != nil {
			return os.ErrExist
		}
		_, err = f.run(ctx, "mv", "-nT", "--", r.Filepath, r.Target)
	case "Rmdir":
		_, err = f.run(ctx, "rmdir", "--", r.Filepath)
	case "Remove":
		_, err = f.run(ctx, "rm", "--", r.Filepath)
	case "Mkdir":
		_, err = f.run(ctx, "mkdir", "--", r.Filepath)
	case "Link":
		_, err = f.run(ctx, "ln", "-T", "--", r.Filepath, r.Target)
	case "Symlink":
		_, err = f.run(ctx, "ln", "-sT", "--", r.Filepath, r.Target)
	default:
		return sftp.ErrSSHFxOpUnsupported
	}
	return f.refused(err)
}

// PosixRename renames a file, and replaces the target.
func (f *files) PosixRename(r *sftp.Request) error {
	_, err := f.run(r.Context(), "mv", "-fT", "--", r.Filepath, r.Target)
	return f.refused(err)
}

// setstat changes the length, the mode, the owner and the times of a file. The service has no calls
// for that. Of a file that is being written, everything except the length is changed at its end.
func (f *files) setstat(ctx context.Context, r *sftp.Request) error {
	f.mu.Lock()
	w := f.writing[r.Filepath]
	f.mu.Unlock()
	flags, attributes := r.AttrFlags(), r.Attributes()
	if flags.Size {
		if w != nil {
			if err := w.flush(); err != nil {
				return f.refused(err)
			}
		}
		if _, err := f.run(ctx, "truncate", "-s", strconv.FormatUint(attributes.Size, 10), "--", r.Filepath); err != nil {
			return f.refused(err)
		}
		flags.Size = false
	}
	change := func(ctx context.Context) error { return f.change(ctx, r.Filepath, flags, attributes) }
	if w != nil {
		w.atEnd(change)
		return nil
	}
	return f.refused(change(ctx))
}

// change changes the owner, the mode and the times of a file.
func (f *files) change(ctx context.Context, name string, flags sftp.FileAttrFlags, to *sftp.FileStat) error {
	var lines [][]string
	if flags.UidGid {
		lines = append(lines, []string{"chown", fmt.Sprintf("%d:%d", to.UID, to.GID)})
	}
	if flags.Permissions {
		lines = append(lines, []string{"chmod", fmt.Sprintf("%04o", to.Mode&0o7777)})
	}
	if flags.Acmodtime {
		lines = append(lines, []string{"touch", "-c", "-a", "-d", fmt.Sprintf("@%d", to.Atime)}, []string{"touch", "-c", "-m", "-d", fmt.Sprintf("@%d", to.Mtime)})
	}
	if len(lines) == 0 {
		return nil
	}
	for i, words := range lines {
		lines[i] = append(words, "--", name)
	}
	_, err := f.Sandbox.Commands.Run(ctx, joined(lines), f.params())
	return programError(err)
}

// joined returns the command line that runs commands until one fails.
func joined(commands [][]string) string {
	var lines []string
	for _, words := range commands {
		var quoted []string
		for _, word := range words {
			quoted = append(quoted, sandbox.Quote(word))
		}
		lines = append(lines, strings.Join(quoted, " "))
	}
	return strings.Join(lines, " && ")
}

// Filelist lists a directory, or describes the file that a path leads to.
func (f *files) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Method != "List" {
		return f.describe(r.Context(), r.Filepath, true)
	}
	infos, err := f.Sandbox.Files.List(r.Context(), r.Filepath, &sandbox.ListFilesParams{User: f.user})
	if err != nil {
		return nil, f.refused(err)
	}
	var found list
	for _, info := range infos {
		found = append(found, fileInfo{info})
	}
	return found, nil
}

// Lstat describes a file, and a symbolic link as such.
func (f *files) Lstat(r *sftp.Request) (sftp.ListerAt, error) {
	return f.describe(r.Context(), r.Filepath, false)
}

func (f *files) describe(ctx context.Context, name string, follow bool) (sftp.ListerAt, error) {
	info, err := f.stat(ctx, name, follow)
	if err != nil {
		return nil, f.refused(err)
	}
	return list{fileInfo{*info}}, nil
}

// stat describes a file. It describes the target of a symbolic link if follow is set.
func (f *files) stat(ctx context.Context, name string, follow bool) (*sandbox.FileInfo, error) {
	info, err := f.Sandbox.Files.Stat(ctx, name, &sandbox.PathParams{User: f.user})
	if err != nil || !follow || info.Mode&fs.ModeSymlink == 0 {
		return info, err
	}
	if info.SymlinkTarget == "" || path.Clean(info.SymlinkTarget) == path.Clean(info.Path) {
		return nil, fs.ErrNotExist // a broken link
	}
	target, err := f.Sandbox.Files.Stat(ctx, info.SymlinkTarget, &sandbox.PathParams{User: f.user})
	if err == nil {
		target.Name = info.Name
	}
	return target, err
}

// Readlink returns the text of a symbolic link.
func (f *files) Readlink(name string) (string, error) {
	target, err := f.run(f.life, "readlink", "-nv", "--", name)
	return target, f.refused(err)
}

// LookupUserName is the owner in a line of ls -l. The library asks by the number of the owner, and
// the service knows only names, so it is left out.
func (f *files) LookupUserName(string) string { return "-" }

// LookupGroupName is the group in a line of ls -l: see LookupUserName.
func (f *files) LookupGroupName(string) string { return "-" }

// fileInfo is a file as the protocol describes it.
type fileInfo struct{ info sandbox.FileInfo }

func (i fileInfo) Name() string       { return i.info.Name }
func (i fileInfo) Size() int64        { return i.info.Size }
func (i fileInfo) Mode() fs.FileMode  { return i.info.Mode }
func (i fileInfo) ModTime() time.Time { return i.info.ModTime }
func (i fileInfo) IsDir() bool        { return i.info.Mode.IsDir() }
func (i fileInfo) Sys() any           { return nil }

type list []os.FileInfo

func (l list) ListAt(to []os.FileInfo, offset int64) (int, error) {
	if offset >= int64(len(l)) {
		return 0, io.EOF
	}
	n := copy(to, l[offset:])
	if n < len(to) {
		return n, io.EOF
	}
	return n, nil
}

// Fileread opens a file for reading.
func (f *files) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	info, err := f.stat(r.Context(), r.Filepath, true)
	switch {
	case err != nil:
		return nil, f.refused(err)
	case info.Mode.IsDir():
		return nil, errors.New("it is a directory")
	}
	if err := f.opens(); err != nil {
		return nil, err
	}
	return &reader{refused: f.refused, closed: f.closed, open: func(offset int64) (io.ReadCloser, error) { return f.read(r.Filepath, offset) }}, nil
}

// read reads a file from a byte on. Only a command in the sandbox can skip the beginning.
func (f *files) read(name string, offset int64) (io.ReadCloser, error) {
	if offset == 0 {
		return f.Sandbox.Files.Open(f.life, name, &sandbox.FileParams{User: f.user})
	}
	ctx, cancel := context.WithCancel(f.life)
	r, w := io.Pipe()
	params := f.params()
	params.Stdout, params.MaxOutputBytes = w, -1
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := f.Sandbox.Commands.Exec(ctx, "tail", []string{"-c", "+" + strconv.FormatInt(offset+1, 10), "--", name}, params)
		_ = w.CloseWithError(programError(err))
	}()
	return &ranged{r, func() { cancel(); <-done }}, nil
}

// ranged is the output of a command, which end ends.
type ranged struct {
	*io.PipeReader
	end func()
}

func (r *ranged) Close() error {
	_ = r.PipeReader.Close()
	r.end()
	return nil
}

// Filewrite opens a file for writing.
func (f *files) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	flags := r.Pflags()
	info, err := f.stat(r.Context(), r.Filepath, true)
	isNew := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !isNew:
		return nil, f.refused(err)
	case isNew && !flags.Creat:
		return nil, sftp.ErrSSHFxNoSuchFile
	case !isNew && flags.Creat && flags.Excl:
		return nil, os.ErrExist
	case !isNew && info.Mode.IsDir():
		return nil, errors.New("it is a directory")
	}
	if err := f.opens(); err != nil {
		return nil, err
	}
	var end int64
	if flags.Append && !isNew {
		end = info.Size
	}
	w := &writer{first: end, open: func(offset int64, truncated bool) *upload { return f.write(r.Filepath, offset, truncated) }}
	if isNew || flags.Trunc {
		w.upload = w.open(0, true)
	}
	if isNew {
		if mode, ok := openMode(r.Attrs); ok && mode != 0o644 {
			w.atEnd(func(ctx context.Context) error {
				return f.change(ctx, r.Filepath, sftp.FileAttrFlags{Permissions: true}, &sftp.FileStat{Mode: mode &^ 0o22})
			})
		}
	}
	f.mu.Lock()
	f.writing[r.Filepath] = w
	f.mu.Unlock()
	return &opened{writer: w, files: f, name: r.Filepath}, nil
}

// openMode returns the permissions of a new file. The library does not say which attributes there
// are, but only the permissions alone take four bytes.
func openMode(attributes []byte) (mode uint32, ok bool) {
	if len(attributes) != 4 {
		return 0, false
	}
	for _, b := range attributes {
		mode = mode<<8 | uint32(b)
	}
	return mode & 0o777, true
}

// opened is a file that a client has open for writing.
type opened struct {
	*writer
	files *files
	name  string
}

func (o *opened) WriteAt(p []byte, offset int64) (int, error) {
	n, err := o.writer.WriteAt(p, offset)
	return n, o.files.refused(err)
}

// Close ends the upload, and then makes the changes that had to wait for it.
func (o *opened) Close() error {
	f := o.files
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open--
		if f.writing[o.name] == o.writer {
			delete(f.writing, o.name)
		}
	}()
	return f.refused(o.close(f.life))
}

// write starts to write to a file from a byte on. The service can only write a whole file, so
// everything else is a command.
func (f *files) write(name string, offset int64, truncated bool) *upload {
	if truncated {
		return newUpload(f.life, func(ctx context.Context, r io.Reader) error {
			return f.Sandbox.Files.WriteFrom(ctx, name, r, &sandbox.FileParams{User: f.user})
		})
	}
	return newUpload(f.life, func(ctx context.Context, r io.Reader) error {
		params := f.params()
		params.Stdin = r
		_, err := f.Sandbox.Commands.Exec(ctx, "dd", []string{
			"of=" + name, "conv=notrunc", "oflag=seek_bytes", "seek=" + strconv.FormatInt(offset, 10), "bs=128K", "iflag=fullblock", "status=none",
		}, params)
		return programError(err)
	})
}
