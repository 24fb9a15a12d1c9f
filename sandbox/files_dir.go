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
	// DefaultMaxBytes and DefaultMaxFiles limit what [Files.DownloadDir] copies
	// unless [DownloadDirParams] sets other limits: 1 GiB, and 100,000 files,
	// directories and links.
	DefaultMaxBytes = 1 << 30
	DefaultMaxFiles = 100_000
)

// ErrTooLarge reports that a limit of the call was exceeded, by a directory of the sandbox or by
// the output of a program that [Commands.Output] runs.
var ErrTooLarge = archive.ErrTooLarge

// UploadDirParams sets how a directory is copied into a sandbox.
type UploadDirParams struct {
	// User is the user at whose home a relative path starts, and who owns what is
	// created; empty means the sandbox's default user.
	User string
	// Exclude returns true for an entry to leave out, with everything below it.
	// Names are paths relative to the directory, with slashes. May be nil.
	Exclude func(name string, entry fs.DirEntry) bool
	// Skipped is called for each file that cannot be copied: sockets, pipes, devices. Names and
	// reasons may hold anything that a file name can. May be nil.
	Skipped func(name, why string)
	// Gzip, IdleTimeout and Progress are those of [FileParams], applied to the
	// archive in which the directory is sent.
	Gzip        bool
	IdleTimeout time.Duration
	Progress    func(bytes int64)
}

// DownloadDirParams sets how a directory is copied out of a sandbox.
type DownloadDirParams struct {
	// User is the user at whose home a relative path starts, and with whose rights
	// the directory is read; empty means the sandbox's default user.
	User string
	// MaxBytes limits the bytes of all files together, and MaxFiles the number of files,
	// directories and links. If there are more, DownloadDir returns [ErrTooLarge], and the
	// files copied before stay. Zero means [DefaultMaxBytes] and [DefaultMaxFiles]. A
	// negative value means no limit: then code in the sandbox can fill this machine's disk.
	MaxBytes, MaxFiles int64
	// Skipped is called for each file that is not copied: devices and the like, and symbolic links
	// that lead, or may lead, out of the directory. Names and reasons come from the sandbox and
	// may hold anything. May be nil.
	Skipped func(name, why string)
	// Progress is called with the number of bytes received so far, including the
	// archive's headers, as often as that of [FileParams], on the caller's
	// goroutine. May be nil.
	Progress func(bytes int64)
}

// UploadDir copies the content of a directory of this machine into a directory of
// the sandbox, which is created if it is missing; existing files of the same name
// are replaced and others stay. Modes, times and symbolic links are kept, and
// links are not followed. The content is sent as an archive, through a file in
// the user's home, and unpacked by the sandbox's tar: it is not held in memory,
// and takes twice its space until it is unpacked.
//
// A directory that is created gets its name when it is complete: until then it is
// hidden beside that name, and a failed upload leaves nothing there. One that exists
// is written file by file: a fork, a snapshot or a pause in the middle has some of them.
func (f *Files) UploadDir(ctx context.Context, local, dir string, p *UploadDirParams) error {
	p = cmp.Or(p, &UploadDirParams{})
	root, err := os.OpenRoot(local)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was read through only
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

// unpackInto has send send an archive to a file of the sandbox, and unpacks it into a
// directory.
func (f *Files) unpackInto(ctx context.Context, dir, user string, send func(ctx context.Context, file string) error) error {
	if err := rpcPath(dir); err != nil { // before anything is sent
		return f.failed(ctx, "upload", dir, err)
	}
	file := ".e2bctl-" + rand.Text() + ".tar"
	if err := send(ctx, file); err != nil {
		f.discard(ctx, file, user) // not every daemon removes an upload that was cut off
		return named("upload", f.sb.ID()+":"+dir, err)
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

// unpackLine unpacks the archive into a directory. Once the archive is open it needs no
// name: however tar ends, it is not left behind. It is opened twice, for a directory
// that somebody else makes meanwhile. What ends in . or .. cannot be named last.
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

// discard removes an archive that is no longer needed, even if the call's context
// has ended.
func (f *Files) discard(ctx context.Context, file, user string) {
	f.sb.background(ctx, func(ctx context.Context) {
		request := connect.NewRequest(&filesystem.RemoveRequest{Path: file})
		asUser(request.Header(), user)
		_, _ = f.rpc.Remove(ctx, request) // there is no caller left to tell
	})
}

// removeTree removes a directory in the background. What has been working in it may still
// be dying and create files, and an ordinary user cannot empty directories that are closed
// for writing.
func (sb *Sandbox) removeTree(ctx context.Context, user, dir string) {
	const line = `cd && for n in {1..20}; do [ -d "$DIR" ] || exit 0; chmod -R u+rwx -- "$DIR"; rm -rf -- "$DIR" && exit; sleep 0.2; done; exit 1`
	sb.background(ctx, func(ctx context.Context) {
		envs := map[string]string{"DIR": shellPath(dir)}
		_, _ = sb.Commands.run(ctx, ownShell(line), &CommandParams{User: user, Envs: envs}) // there is no caller left to tell
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
			// net/http compares it, which panics for errors such as those of archive/tar.
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

// DownloadDir copies the content of a directory of the sandbox into a directory
// of this machine, which is created if it is missing; files and links that are in
// the way are replaced and others stay. Modes except setuid and setgid, times and
// symbolic links are kept. The content is packed by the sandbox's tar, and is not
// held in memory.
//
// The content of a sandbox is not trusted: no name and no link leads to a write outside of local,
// and p limits how much is written. If the path is not a directory, the error is syscall.ENOTDIR.
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
	// If both failed, what broke the archive is the better reason.
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

// receiveArchive unpacks an archive. Nothing is created before the archive
// begins.
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
	defer func() { _ = root.Close() }() // every file of it has been closed
	u := archive.Unpacker{
		Root: root, Skipped: orNothing(p.Skipped),
		MaxBytes: cmp.Or(p.MaxBytes, DefaultMaxBytes), MaxFiles: cmp.Or(p.MaxFiles, DefaultMaxFiles),
	}
	if err := u.Unpack(ctx, stream); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stream) // tar pads its end
	return err
}

// dirCommand runs a shell line of this package in the directory where relative
// paths start. Paths are passed in its environment, where the shell does not
// interpret them.
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

// shellPath returns path for a shell that runs in the directory where relative paths start.
// The result is never taken for an option.
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
