package sshserver

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"testing"

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
	if _, err := client.StatVFS("absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the space at a missing file: %v", err)
	}
}

// same compares a file of the sandbox.
func same(t *testing.T, sb *sandbox.Sandbox, name string, want []byte) {
	t.Helper()
	got, err := sb.Files.Read(t.Context(), name, nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes (%v), which are not the %d that were written", name, len(got), err, len(want))
	}
}
