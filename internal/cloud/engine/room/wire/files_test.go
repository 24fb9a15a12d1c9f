//go:build linux

package wire

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// writing returns the writing end of a pipe, and a function that reports whether it is closed
// everywhere.
func writing(t *testing.T) (w *os.File, isClosed func() bool) {
	t.Helper()
	r, w, err := os.Pipe()
	must.Do(t, err)
	t.Cleanup(func() { r.Close() })
	fd := int(r.Fd())
	must.Do(t, unix.SetNonblock(fd, true))
	return w, func() bool {
		n, err := unix.Read(fd, make([]byte, 1))
		return n == 0 && err == nil
	}
}

// TestFiles checks that files arrive under their names, whatever the order in which they are taken,
// and that the files that nobody takes are named and closed.
func TestFiles(t *testing.T) {
	t.Parallel()
	a, b := pairOfConns(t)
	var files Files
	defer files.Close()
	closed := map[FileName]func() bool{}
	for _, name := range []FileName{FileConfig, FileTree.Numbered(0), FileTree.Numbered(1), FileSaved, FileProc} {
		w, isClosed := writing(t)
		files.Add(name, w)
		closed[name] = isClosed
	}
	must.Do(t, a.SendFiles(Message{Kind: KindRole}, &files))
	files.Close()
	files.Close()
	_, got, err := b.Receive(MaxFiles)
	must.Do(t, err)
	defer got.Close()
	if trees := got.TakeList(FileTree); len(trees) != 2 {
		t.Fatalf("a list has %d files, want 2", len(trees))
	} else {
		CloseAll(trees)
	}
	if !closed[FileTree.Numbered(0)]() || !closed[FileTree.Numbered(1)]() {
		t.Error("the files of the list are open after they were closed: others came under their names")
	}
	proc, err := got.Take(FileProc)
	must.Do(t, err)
	if _, err := got.Take(FileProc); !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), `"proc"`) {
		t.Errorf("a file that was taken already: got %v, want ErrProtocol with its name", err)
	}
	if got.TakeIf(FileTar) != nil {
		t.Error("a file came that was not sent")
	}
	if err := got.End(); !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), `"config", "saved"`) {
		t.Errorf("two files are left: got %v, want ErrProtocol with their names", err)
	}
	if !closed[FileConfig]() || !closed[FileSaved]() {
		t.Error("End has not closed the files that were left")
	}
	if closed[FileProc]() {
		t.Error("End closed a file that was taken")
	}
	proc.Close()
	must.Do(t, got.End())
}

// TestLent checks that a lent file stays open, and that a message without files takes a nil *Files.
func TestLent(t *testing.T) {
	t.Parallel()
	a, b := pairOfConns(t)
	w, isClosed := writing(t)
	files := Lent(FileStream, w)
	must.Do(t, a.SendFiles(Message{Kind: KindDial}, files))
	files.Close()
	_, got, err := b.Receive(1)
	must.Do(t, err)
	got.Close()
	if isClosed() {
		t.Error("a lent file was closed")
	}
	w.Close()
	if !isClosed() {
		t.Error("a file is open that nobody has")
	}
	must.Do(t, a.SendFiles(Message{Kind: KindGo}, nil))
	m, got, err := b.Receive(1)
	must.Do(t, err)
	if m.Kind != KindGo || got.Len() != 0 {
		t.Errorf("got %q with %d files, want %q alone", m.Kind, got.Len(), KindGo)
	}
}

// TestTakeWhen checks that a file is only taken where it was announced, and is then required.
func TestTakeWhen(t *testing.T) {
	t.Parallel()
	var files Files
	w, isClosed := writing(t)
	other, _ := writing(t)
	files.AddList(FileLayer, []*os.File{w, other})
	if f, err := files.TakeWhen(false, FileLayer.Numbered(0)); f != nil || err != nil || files.Len() != 2 {
		t.Errorf("not announced: got %v, %v and %d files left, want nothing and two", f, err, files.Len())
	}
	if f, err := files.TakeWhen(true, FileLayer.Numbered(0)); f != w || err != nil {
		t.Errorf("announced: got %v, %v, want the file", f, err)
	}
	if f, err := files.TakeAt(FileLayer, 1); f != other || err != nil {
		t.Errorf("number 1: got %v, %v, want the file", f, err)
	}
	_, err := files.TakeWhen(true, FileLayer.Numbered(0))
	must.Is(t, err, ErrProtocol)
	files.Close()
	if isClosed() {
		t.Error("a file that was taken is closed")
	}
	must.Do(t, errors.Join(w.Close(), other.Close()))
	var none *Files
	if none.Close(); none.Len() != 0 {
		t.Errorf("got %d files of none", none.Len())
	}
}

// TestForgedNames checks that a message is refused, and its files are closed, if its names are not
// those of its files: the peer may be hostile.
func TestForgedNames(t *testing.T) {
	t.Parallel()
	for _, names := range [][]FileName{nil, {FileConfig}, {FileConfig, FileSaved, FileTar}} {
		a, b := pairOfConns(t)
		var files Files
		one, oneClosed := writing(t)
		other, otherClosed := writing(t)
		data, err := json.Marshal(Message{Kind: KindReady, Files: names})
		must.Do(t, err)
		_, _, err = a.conn.WriteMsgUnix(data, unix.UnixRights(int(one.Fd()), int(other.Fd())), nil)
		must.Do(t, err)
		files.Add(FileConfig, one)
		files.Add(FileConfig, other)
		files.Close()
		_, _, err = b.Receive(MaxFiles)
		must.Is(t, err, ErrProtocol)
		if !oneClosed() || !otherClosed() {
			t.Errorf("names %q: the files of a refused message are open", names)
		}
		a.Close()
		if _, _, err := b.Receive(0); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want io.EOF", err)
		}
	}
}

func pairOfConns(t *testing.T) (a, b *Conn) {
	t.Helper()
	a, file, err := Pair(MaxMessage)
	must.Do(t, err)
	t.Cleanup(a.Close)
	b, err = NewConn(file, MaxMessage)
	must.Do(t, err)
	t.Cleanup(b.Close)
	return a, b
}
