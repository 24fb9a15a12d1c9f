package sshserver

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/pkg/sftp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// content returns n bytes. No piece of them is like another.
func content(n int) []byte {
	random := rand.NewChaCha8([32]byte{1})
	data := make([]byte, n)
	_, _ = random.Read(data)
	return data
}

// testFiles uses sftp with a client that sends its requests in any order.
func testFiles(t *testing.T, sb *sandbox.Sandbox) {
	s := connect(t, sb, "user", nil)
	client, err := sftp.NewClient(s.Client, sftp.UseConcurrentWrites(true), sftp.UseConcurrentReads(true))
	must.Do(t, err)
	defer client.Close()
	data := content(3*window + 12345)

	file, err := client.Create("large")
	must.Do(t, err)
	_, err = file.ReadFrom(bytes.NewReader(data))
	must.Do(t, err)
	must.Do(t, file.Chmod(0o640))
	must.Do(t, file.Close())
	same(t, sb, "large", data)
	if info, err := client.Stat("large"); err != nil || info.Mode() != 0o640 || info.Size() != int64(len(data)) {
		t.Errorf("stat: %v, %v", info, err)
	}

	file, err = client.Open("large")
	must.Do(t, err)
	var whole bytes.Buffer
	_, err = file.WriteTo(&whole)
	must.Do(t, err)
	if !bytes.Equal(whole.Bytes(), data) {
		t.Error("the file came back changed")
	}
	part := make([]byte, 70_000)
	for _, at := range []int{2 * window, 0, len(data) - 10, window, window + behind, window + 50_000, 2*window + 1} {
		n, err := file.ReadAt(part, int64(at))
		if want := data[at:min(at+len(part), len(data))]; !bytes.Equal(part[:n], want) || err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("at %d: %d bytes, %v", at, n, err)
		}
	}
	must.Do(t, file.Close())
	testWritesAnywhere(t, sb, client, data)
	testRefusedFiles(t, sb, client)
	testChangesOfFiles(t, sb, client)
}

// testWritesAnywhere writes parts of a file in an order that no stream has.
func testWritesAnywhere(t *testing.T, sb *sandbox.Sandbox, client *sftp.Client, data []byte) {
	file, err := client.OpenFile("large", os.O_WRONLY)
	must.Do(t, err)
	for _, at := range []int{100, 2 * window, 50, 2*window + 10, len(data) - 5, 105, 0} {
		_, err := file.WriteAt([]byte("0123456789"), int64(at))
		must.Do(t, err)
		data = append(data, make([]byte, max(0, at+10-len(data)))...)
		copy(data[at:], "0123456789")
	}
	must.Do(t, file.Close())
	same(t, sb, "large", data)

	file, err = client.OpenFile("large", os.O_WRONLY)
	must.Do(t, err)
	must.Do(t, file.Truncate(20))
	_, err = file.WriteAt([]byte("end"), 25)
	must.Do(t, err)
	must.Do(t, file.Close())
	same(t, sb, "large", append(append(bytes.Clone(data[:20]), 0, 0, 0, 0, 0), "end"...))

	file, err = client.OpenFile("sparse", os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	must.Do(t, err)
	_, err = file.WriteAt([]byte("x"), 3)
	must.Do(t, err)
	must.Do(t, file.Close())
	same(t, sb, "sparse", []byte("\x00\x00\x00x"))
}

func testRefusedFiles(t *testing.T, sb *sandbox.Sandbox, client *sftp.Client) {
	if _, err := client.OpenFile("sparse", os.O_WRONLY|os.O_CREATE|os.O_EXCL); err == nil {
		t.Error("a file was created that exists")
	}
	if _, err := client.OpenFile("absent", os.O_WRONLY); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("writing to a missing file: %v", err)
	}
	if _, err := client.Open("/etc"); err == nil {
		t.Error("a directory was opened as a file")
	}
	// The server alone knows the end of a file in this mode, and writes arrive in no order.
	file, err := client.OpenFile("sparse", os.O_WRONLY|os.O_APPEND)
	must.Do(t, err)
	if _, err := file.Write([]byte("y")); err == nil {
		t.Error("a write without an offset was accepted")
	}
	_ = file.Close()
	same(t, sb, "sparse", []byte("\x00\x00\x00x"))
	if err := client.Rename("large", "sparse"); err == nil {
		t.Error("a file was replaced")
	}
	must.Do(t, client.PosixRename("large", "sparse"))
	if err := client.Remove("large"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removing a missing file: %v", err)
	}
	if err := client.Mkdir("/proc/x"); err == nil {
		t.Error("a directory was made in /proc")
	}
	if err := client.Chmod("/etc/passwd", 0o777); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("changing a file of root: %v", err)
	}
	must.Do(t, client.Symlink("nowhere", "broken"))
	if target, err := client.ReadLink("broken"); target != "nowhere" || err != nil {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	if _, err := client.Stat("broken"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a broken link: %v", err)
	}
	var open []*sftp.File
	for len(open) <= maxOpen {
		file, err := client.Open("sparse")
		if err != nil {
			break
		}
		open = append(open, file)
	}
	if len(open) != maxOpen {
		t.Errorf("%d files could be open at once, want %d", len(open), maxOpen)
	}
	for _, file := range open {
		must.Do(t, file.Close())
	}
	if s, err := client.StatVFS("."); err != nil || s.FreeSpace() == 0 || s.FreeSpace() > s.TotalSpace() || s.Namemax == 0 {
		t.Errorf("the space of the file system: %+v, %v", s, err)
	}
	if s, err := client.StatVFS("."); err != nil || !slices.IsSorted([]uint64{1, s.Bsize}) || !slices.IsSorted([]uint64{s.Bavail, s.Bfree, s.Blocks}) || !slices.IsSorted([]uint64{s.Favail, s.Ffree, s.Favail, s.Files}) {
		t.Errorf("the blocks and files of the file system: %+v, %v", s, err)
	}
	if _, err := client.StatVFS("absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the space at a missing file: %v", err)
	}
}

// testChangesOfFiles uses each request that changes or describes files.
func testChangesOfFiles(t *testing.T, sb *sandbox.Sandbox, client *sftp.Client) {
	must.Do(t, client.Mkdir("dir"))
	file, err := client.OpenFile("dir/a b", os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	must.Do(t, err)
	_, err = file.Write([]byte("0123456789"))
	must.Do(t, err)
	at := time.Unix(1_000_000, 0)
	must.Do(t, client.Chtimes("dir/a b", at.Add(time.Hour), at)) // it waits for the end of the file
	must.Do(t, client.Chmod("dir/a b", 0o4751))
	must.Do(t, file.Close())
	info, err := client.Stat("dir/a b")
	must.Do(t, err)
	if !info.ModTime().Equal(at) || info.Mode() != fs.ModeSetuid|0o751 || info.Size() != 10 || info.Name() != "a b" {
		t.Errorf("got %+v", info)
	}
	must.Do(t, client.Truncate("dir/a b", 3))
	same(t, sb, "dir/a b", []byte("012"))
	file, err = client.OpenFile("dir/a b", os.O_WRONLY|os.O_TRUNC)
	must.Do(t, errors.Join(err, file.Close()))
	same(t, sb, "dir/a b", nil)
	must.Do(t, client.Link("dir/a b", "dir/second"))
	must.Do(t, client.Symlink("a b", "dir/link"))
	for _, err := range []error{client.Link("dir/a b", "dir/second"), client.Symlink("x", "dir/link"), client.Mkdir("dir"), client.RemoveDirectory("dir"), client.Rename("dir/a b", "dir/link"), client.Truncate("/etc/passwd", 0), client.Chown("dir/a b", 0, 0)} {
		if err == nil {
			t.Error("a change that is not possible was answered as if it had been made")
		}
	}
	link, err := client.Lstat("dir/link")
	must.Do(t, err)
	target, err := client.Stat("dir/link")
	must.Do(t, err)
	if link.Mode()&fs.ModeSymlink == 0 || !target.Mode().IsRegular() || target.Name() != "link" {
		t.Errorf("the link is %v, and leads to %v with the name %q", link.Mode(), target.Mode(), target.Name())
	}
	names := ""
	found, err := client.ReadDir("dir")
	must.Do(t, err)
	for _, info := range found {
		names += info.Name() + "|"
	}
	if names != "a b|link|second|" {
		t.Errorf("the directory has %q", names)
	}
	must.Do(t, client.Rename("dir/second", "dir/third"))
	for _, name := range []string{"dir/a b", "dir/link", "dir/third"} {
		must.Do(t, client.Remove(name))
	}
	must.Do(t, client.RemoveDirectory("dir"))
	for name, err := range map[string]error{"stat": second(client.Stat("dir")), "lstat": second(client.Lstat("dir")), "readdir": second(client.ReadDir("dir")), "open": second(client.Open("dir")), "readlink": second(client.ReadLink("dir"))} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of what is gone: %v", name, err)
		}
	}
	if _, err := client.OpenFile(".", os.O_WRONLY); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory was opened for writing: %v", err)
	}
	file, err = client.OpenFile("new", os.O_WRONLY|os.O_CREATE)
	must.Do(t, err)
	must.Do(t, file.Close())
	if info, err := client.Stat("new"); err != nil || info.Mode() != 0o644 || info.Size() != 0 {
		t.Errorf("a new file: got %v and error %v", info, err)
	}
	if home, err := client.Getwd(); err != nil || home != "/home/user" {
		t.Errorf("the home is %q (%v)", home, err)
	}
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }

// same compares a file of the sandbox.
func same(t *testing.T, sb *sandbox.Sandbox, name string, want []byte) {
	t.Helper()
	got, err := sb.Files.Read(t.Context(), name, nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes (%v), which are not the %d that were written", name, len(got), err, len(want))
	}
}
