package mirror

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/archive"
	"github.com/e2bctl/e2bctl/sandbox"
)

// The shell command lines exit with statusMissing if the directory is missing, and with statusNoDir
// if its path is that of another kind of file.
const (
	statusMissing = 102
	statusNoDir   = 120
)

const (
	enterLine = `cd && { [ -e "$DIR" ] || exit 102; [ -d "$DIR" ] || exit 120; cd -- "$DIR"; } || exit
`
	listLine       = enterLine + `exec find . -ignore_readdir_race -mindepth 1 -printf '%y %m %s %T@ %l\0%P\0'`
	ignoreLine     = enterLine + `find . -ignore_readdir_race -name .gitignore -type f -print0 | tar -c -f - --null --no-recursion --ignore-failed-read -T -`
	removeLine     = enterLine + `exec xargs -0 -r rm -f --`
	removeDirsLine = enterLine + `exec xargs -0 -r rmdir --ignore-fail-on-non-empty --`
	packLine       = enterLine + `exec tar -c -f - --format=posix --pax-option=delete=atime,delete=ctime --no-recursion --ignore-failed-read --null -T -`
)

// remote is a directory of a sandbox.
type remote struct {
	sandbox *sandbox.Sandbox
	user    string
	dir     string
}

// run runs one of the command lines of this package in the directory.
func (r *remote) run(ctx context.Context, line string, stdin io.Reader, stdout io.Writer) error {
	dir := r.dir
	if !path.IsAbs(dir) {
		dir = "./" + dir
	}
	_, err := r.sandbox.Commands.Exec(ctx, "/bin/sh", []string{"-c", line}, &sandbox.CommandParams{
		User: r.user, Envs: map[string]string{"DIR": dir}, Stdin: stdin, Stdout: stdout, MaxOutputBytes: 4096,
	})
	if exit, ok := errors.AsType[*sandbox.ExitError](err); ok {
		switch exit.Result.ExitCode {
		case statusMissing:
			err = fs.ErrNotExist
		case statusNoDir:
			err = syscall.ENOTDIR
		}
	}
	if err != nil {
		return &fs.PathError{Op: "sync", Path: r.sandbox.ID() + ":" + r.dir, Err: err}
	}
	return nil
}

// read runs a command line, and calls read with its output. If both fail it returns the error of
// read, because that is the cause.
func (r *remote) read(ctx context.Context, line string, stdin io.Reader, read func(io.Reader) error) error {
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := read(out)
		if err == nil {
			_, err = io.Copy(io.Discard, out)
		}
		out.CloseWithError(err)
		done <- err
	}()
	err := r.run(ctx, line, stdin, in)
	in.CloseWithError(err)
	if readErr := <-done; readErr != nil && !errors.Is(readErr, err) {
		return readErr
	}
	return err
}

// maxIgnoreFiles bounds the total size of the .gitignore files from a sandbox, in bytes.
const maxIgnoreFiles = 1 << 20

// readIgnoreFiles adds the .gitignore files of the directory.
func (r *remote) readIgnoreFiles(ctx context.Context, rules *rules) error {
	return r.read(ctx, ignoreLine, nil, func(out io.Reader) error {
		files, left := tar.NewReader(out), int64(maxIgnoreFiles)
		for {
			header, err := files.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("reading the %s files of the sandbox: %w", ignoreFile, err)
			}
			if left -= header.Size; left < 0 {
				return fmt.Errorf("%w: the %s files have more than %d bytes", sandbox.ErrTooLarge, ignoreFile, maxIgnoreFiles)
			}
			text, err := io.ReadAll(files)
			if err != nil {
				return err
			}
			rules.add(path.Dir(path.Clean(header.Name)), string(text))
		}
	})
}

// scan lists the directory. See [readTree] for the parameters.
func (r *remote) scan(ctx context.Context, ignore []*rules, maxFiles int64, inside bool, skipped func(name, why string)) (all tree, err error) {
	err = r.read(ctx, listLine, nil, func(out io.Reader) (err error) {
		all, err = readTree(out, ignore, maxFiles, inside, skipped)
		return err
	})
	return all, err
}

// readTree reads the output of listLine. The list comes from the sandbox, so readTree checks it: no
// path leads out of the directory, and each path is in a directory that was listed before. If inside
// is set, readTree leaves out links to targets outside of the directory.
func readTree(list io.Reader, ignore []*rules, maxFiles int64, inside bool, skipped func(name, why string)) (tree, error) {
	all := tree{}
	for in := bufio.NewReaderSize(list, 1<<16); ; {
		facts, err := field(in)
		if errors.Is(err, io.EOF) && facts == "" {
			return all, nil
		}
		name, nameErr := field(in)
		if err = errors.Join(err, nameErr); err != nil {
			return nil, fmt.Errorf("the list of files was cut off: %w", err)
		}
		e, special, err := parseEntry(facts)
		if err != nil || !filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name {
			return nil, fmt.Errorf("the sandbox lists a file that cannot be: %q (%q)", name, facts)
		}
		if ignoredBy(ignore, name, e.isDir()) {
			all.ignored(name)
			continue
		}
		switch {
		case special:
			skipped(name, errSpecial.Error())
			e = entry{kind: unsendable}
		case inside && e.kind == fs.ModeSymlink && archive.LeadsOut(filepath.FromSlash(path.Dir(name)), filepath.FromSlash(e.target)):
			skipped(name, fmt.Sprintf("it is a link to %s, which may be outside of the directory", e.target))
			e = entry{kind: unsendable}
		}
		switch {
		case path.Dir(name) != "." && !all[path.Dir(name)].isDir():
			return nil, fmt.Errorf("the sandbox lists %q, which is in no directory", name)
		case maxFiles >= 0 && int64(len(all)) >= maxFiles:
			return nil, fmt.Errorf("%w: the directory has more than %d files, directories and links", sandbox.ErrTooLarge, maxFiles)
		}
		all[name] = e
	}
}

// maxField bounds one field of a list.
const maxField = 1 << 14

// field reads up to the next NUL.
func field(in *bufio.Reader) (string, error) {
	text, err := in.ReadSlice(0)
	if len(text) > maxField {
		return "", fmt.Errorf("a name of more than %d bytes", maxField)
	}
	return string(bytes.TrimSuffix(text, []byte{0})), err
}

// parseEntry parses the output of the command listLine for one entry.
func parseEntry(facts string) (e entry, special bool, err error) {
	parts := strings.SplitN(facts, " ", 5)
	if len(parts) != 5 {
		return e, false, errors.New("fields are missing")
	}
	switch parts[0] {
	case "f":
	case "d":
		e.kind = fs.ModeDir
	case "l":
		e.kind, e.target = fs.ModeSymlink, parts[4]
	default:
		return e, true, nil
	}
	perm, err := strconv.ParseUint(parts[1], 8, 32)
	if err != nil {
		return e, false, err
	}
	e.perm = fs.FileMode(perm).Perm()
	if e.size, err = strconv.ParseInt(parts[2], 10, 64); err != nil {
		return e, false, err
	}
	seconds, fraction, _ := strings.Cut(parts[3], ".")
	s, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return e, false, err
	}
	nanos, err := strconv.ParseUint((fraction + "000000000")[:9], 10, 32)
	e.modTime = time.Unix(s, int64(nanos))
	return e, false, err
}

// remove removes entries, each directory after its content. It does not remove a directory that is
// still not empty.
func (r *remote) remove(ctx context.Context, names []string, in tree) error {
	var files, dirs []string
	for _, name := range names {
		if in[name].isDir() {
			dirs = append(dirs, name)
		} else {
			files = append(files, name)
		}
	}
	if len(files) > 0 {
		if err := r.run(ctx, removeLine, listOf(files), nil); err != nil {
			return err
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	return r.run(ctx, removeDirsLine, listOf(dirs), nil)
}

// listOf returns a reader of names in the input format of this package's shell commands.
func listOf(names []string) io.Reader {
	var list strings.Builder
	for _, name := range names {
		list.WriteString("./" + name + "\x00")
	}
	return strings.NewReader(list.String())
}
