package sandbox

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/archive"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
)

const (
	// DefaultMaxBytes and DefaultMaxFiles are the default limits of [Files.DownloadDir]: 1 GiB,
	// and 100,000 files, directories and links. [DownloadDirParams] sets other limits.
	DefaultMaxBytes = 1 << 30
	DefaultMaxFiles = 100_000
)

// ErrTooLarge means that a directory of the sandbox, or the output of a program that
// [Commands.Output] runs, exceeded a limit of the call.
var ErrTooLarge = archive.ErrTooLarge

// UploadDirParams sets how to copy a directory into a sandbox.
type UploadDirParams struct {
	// User is the owner of new files, and relative paths begin at this user's home. Empty means
	// the sandbox's default user.
	User string
	// Exclude returns true for an entry that UploadDir must not copy, together with everything below
	// it. The name is the path relative to the directory, with slashes. Exclude may be nil.
	Exclude func(name string, entry fs.DirEntry) bool
	// Skipped is called for each file that cannot be copied: a socket, pipe or device. name and why
	// may contain any character of a file name. Skipped may be nil.
	Skipped func(name, why string)
	// Gzip, IdleTimeout and Progress have the meaning of the fields of [FileParams]. They apply
	// to the archive in which the directory is sent.
	Gzip        bool
	IdleTimeout time.Duration
	Progress    func(bytes int64)
}

// DownloadDirParams sets how to copy a directory out of a sandbox.
type DownloadDirParams struct {
	// User is the user with whose rights the files are read. Relative paths begin at this user's
	// home. Empty means the sandbox's default user.
	User string
	// MaxBytes limits the bytes of all files together. MaxFiles limits the number of files,
	// directories and links. If a limit is exceeded, DownloadDir returns [ErrTooLarge], and the files
	// that were already copied remain. Zero means [DefaultMaxBytes] and [DefaultMaxFiles]. A negative
	// value means no limit; code in the sandbox can then fill this machine's disk.
	MaxBytes, MaxFiles int64
	// Skipped is called for each file that is not copied: devices and similar files, and symbolic
	// links that lead, or may lead, out of the directory. name and why come from the sandbox and may
	// contain anything. Skipped may be nil.
	Skipped func(name, why string)
	// Progress is called with the number of bytes received so far, including the archive's headers. It
	// is called on the caller's goroutine, as often as [FileParams].Progress. Progress may be nil.
	Progress func(bytes int64)
}

// UploadDir copies the content of a directory of this machine into a directory of the sandbox. It
// creates dir if it is missing, replaces existing files that have the same name, and keeps other
// files. It keeps modes, times and symbolic links, and does not follow links. The content is sent
// as an archive, which is stored in the user's home and unpacked by the sandbox's tar. The archive
// is not kept in memory. Until it is unpacked, the content needs twice its space in the sandbox.
//
// A new directory appears under its name when it is complete. Until then it has a hidden name in
// the same parent directory. A failed upload leaves no directory under either name. An existing
// directory is written file by file, so a fork, a snapshot or a pause during the upload contains
// only some of the new files.
func (f *Files) UploadDir(ctx context.Context, local, dir string, p *UploadDirParams) error {
	p = cmp.Or(p, &UploadDirParams{})
	root, err := os.OpenRoot(local)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only used for reading
	ctx, end, err := f.sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	pack := archive.Packer{Root: root, Exclude: p.Exclude, Skipped: orNothing(p.Skipped)}
	return f.unpackInto(ctx, dir, p.User, func(ctx context.Context, file string) error {
		return f.sendArchive(ctx, pack.Pack, file, &FileParams{User: p.User, Gzip: p.Gzip, IdleTimeout: p.IdleTimeout, Progress: p.Progress})
	})
}

// unpackInto calls send to send an archive to a file of the sandbox, and unpacks the archive
// into a directory.
func (f *Files) unpackInto(ctx context.Context, dir, user string, send func(ctx context.Context, file string) error) error {
	if err := rpcPath(dir); err != nil { // checked before anything is sent
		return f.failed(ctx, "upload", dir, err)
	}
	file := ".e2bctl-" + rand.Text() + ".tar"
	if err := send(ctx, file); err != nil {
		f.discard(ctx, file, user) // not every daemon removes an incomplete upload
		return withName("upload", f.sb.ID()+":"+dir, err)
	}
	dir = cmp.Or(strings.TrimRight(dir, "/"), dir)
	unpacked := dir[:strings.LastIndexByte(dir, '/')+1] + ".e2bctl-" + rand.Text()
	if err := f.dirCommand(ctx, user, unpackLine, map[string]string{"DIR": dir, "NEW": unpacked, "ARCHIVE": file}, nil); err != nil {
		if _, ran := errors.AsType[*ExitError](err); !ran {
			f.discard(ctx, file, user)
			f.sb.removeTree(ctx, user, unpacked)
		}
		return f.failed(ctx, "upload", dir, err)
	}
	return nil
}

// unpackLine unpacks the archive into a directory. It deletes the archive file as soon as it has
// opened it, so that nothing remains however tar ends. It opens the archive twice. If another
// process creates the directory during the first unpacking, unpackLine unpacks the archive a second
// time, into that directory. A path that ends in . or .. cannot be the target of a rename, so such
// a directory is not created under a hidden name.
const unpackLine = `{ rm -f -- "$ARCHIVE"
last=${DIR##*/}
if [ -e "$DIR" ] || [ -L "$DIR" ] || [ "$last" = . ] || [ "$last" = .. ]; then
	mkdir -p -- "$DIR" && tar -x -p -o -f - -C "$DIR"
	exit
fi
mkdir -p -- "${NEW%/*}/" && mkdir -- "$NEW" && tar -x -p -o -f - -C "$NEW"
status=$?
if [ $status = 0 ] && ! mv -T -- "$NEW" "$DIR" 2>/dev/null; then
	mkdir -p -- "$DIR" && tar -x -p -o -f - -C "$DIR" <&3
	status=$?
fi
[ ! -d "$NEW" ] || { chmod -R u+rwx -- "$NEW"; rm -rf -- "$NEW"; }
exit $status
} < "$ARCHIVE" 3< "$ARCHIVE"`

// discard removes an archive, even if the call's context has ended.
func (f *Files) discard(ctx context.Context, file, user string) {
	f.sb.background(ctx, func(ctx context.Context) {
		request := connect.NewRequest(&filesystem.RemoveRequest{Path: file})
		asUser(request.Header(), user)
		_, _ = f.rpc.Remove(ctx, request) // no caller remains to receive the error
	})
}

// removeTree removes a directory in the background. It tries several times, because processes that
// use the directory may still create files while they end. It also makes directories writable,
// because an ordinary user can remove files only from directories that are writable.
func (sb *Sandbox) removeTree(ctx context.Context, user, dir string) {
	const line = `cd && for n in {1..20}; do [ -d "$DIR" ] || exit 0; chmod -R u+rwx -- "$DIR"; rm -rf -- "$DIR" && exit; sleep 0.2; done; exit 1`
	sb.background(ctx, func(ctx context.Context) {
		envs := map[string]string{"DIR": shellPath(dir)}
		_, _ = sb.Commands.run(ctx, ownShell(line), &CommandParams{User: user, Envs: envs}) // no caller remains to receive the error
	})
}

// sendArchive sends the archive that pack writes.
func (f *Files) sendArchive(ctx context.Context, pack func(context.Context, io.Writer) error, file string, p *FileParams) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, w := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		err := pack(ctx, w)
		if err != nil {
			// net/http compares this error with ==, which panics for errors such as those of
			// archive/tar.
			err = fmt.Errorf("pack the files: %w", err)
		}
		w.CloseWithError(err)
	}()
	err := f.WriteFrom(ctx, file, r, p)
	r.CloseWithError(errUploadEnded)
	cancel(errUploadEnded)
	<-packed
	return err
}

// DownloadDir copies the content of a directory of the sandbox into a directory of this machine. It
// creates local if it is missing, replaces existing files and links that have the same name, and
// keeps other files. It preserves times, symbolic links, and modes except setuid and setgid. The
// sandbox's tar packs the content, which is not kept in memory.
//
// The content of a sandbox is not trusted: no name and no link causes a write outside of local,
// and p limits the amount of data. The error is syscall.ENOTDIR if the path is not a directory.
func (f *Files) DownloadDir(ctx context.Context, dir, local string, p *DownloadDirParams) error {
	p = cmp.Or(p, &DownloadDirParams{})
	ctx, end, err := f.sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	r, w := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := receiveArchive(ctx, r, local, p)
		r.CloseWithError(err)
		unpacked <- err
	}()
	progress := newProgress(p.Progress)
	err = f.dirCommand(ctx, p.User, `[ -e "$DIR" ] || exit 102; [ -d "$DIR" ] || exit 120; exec tar -c -f - -C "$DIR" .`,
		map[string]string{"DIR": dir}, counted{w, progress})
	w.CloseWithError(err)
	// If both failed, the error that broke the archive is the better reason.
	unpackErr := <-unpacked
	switch exit, exited := errors.AsType[*ExitError](err); {
	case exited && exit.Result.ExitCode == 102:
		err = fs.ErrNotExist
	case exited && exit.Result.ExitCode == 120:
		err = syscall.ENOTDIR
	case unpackErr != nil:
		err = unpackErr
	}
	if err != nil {
		return f.failed(ctx, "download", dir, err)
	}
	progress.finish()
	return nil
}

// receiveArchive unpacks an archive. It creates nothing before it has received the beginning of the
// archive.
func receiveArchive(ctx context.Context, r io.Reader, local string, p *DownloadDirParams) error {
	stream := bufio.NewReader(r)
	if _, err := stream.Peek(1); err != nil {
		return unexpectedEOF(err)
	}
	if err := os.MkdirAll(local, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(local)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // all files below it have been closed
	u := archive.Unpacker{
		Root: root, Skipped: orNothing(p.Skipped),
		MaxBytes: cmp.Or(p.MaxBytes, DefaultMaxBytes), MaxFiles: cmp.Or(p.MaxFiles, DefaultMaxFiles),
	}
	if err := u.Unpack(ctx, stream); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stream) // tar adds padding at the end
	return err
}

// dirCommand runs a command line that this package wrote, in the directory where relative paths
// begin. It passes paths in the environment, so that the shell does not interpret them.
func (f *Files) dirCommand(ctx context.Context, user, line string, paths map[string]string, stdout io.Writer) error {
	for name, path := range paths {
		if err := rpcPath(path); err != nil {
			return err
		}
		paths[name] = shellPath(path)
	}
	_, err := f.sb.Commands.runOwn(ctx, "cd && "+line, &CommandParams{User: user, Envs: paths, Stdout: stdout, MaxOutputBytes: 4096})
	return err
}

// shellPath converts path for a shell that runs in the directory where relative paths begin. No
// command mistakes the result for an option.
func shellPath(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		path = "." + path[1:]
	}
	if !strings.HasPrefix(path, "/") {
		path = "./" + path
	}
	return path
}

// counted is a writer that counts its bytes.
type counted struct {
	w        io.Writer
	progress *progress
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.progress.add(n)
	return n, err
}

func orNothing(skipped func(name, why string)) func(name, why string) {
	if skipped == nil {
		return func(string, string) {}
	}
	return skipped
}
