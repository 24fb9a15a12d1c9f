//go:build linux

package envd

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestUploadToPipe checks that an upload to a pipe reaches its reader, and that a pipe without
// a reader is refused. Neither pipe becomes a regular file or changes its owner.
func TestUploadToPipe(t *testing.T) {
	t.Parallel()
	d := serve(t)
	pipe := d.home + "/pipe"
	must.Do(t, unix.Mkfifo(pipe, 0o600))
	upload := func(body string) (int, string) {
		res, answer := d.do(t, "POST", "/files?path=pipe", body, "Content-Type", "application/octet-stream")
		return res.StatusCode, answer
	}
	if status, answer := upload("lost"); status != http.StatusBadRequest || !strings.Contains(answer, "nobody reads the pipe: "+pipe) {
		t.Errorf("without a reader: %d %s, want status http.StatusBadRequest and %q in it", status, answer, "nobody reads the pipe: "+pipe)
	}
	much := strings.Repeat("0123456789abcdef", 3*block/16) + "end"
	read := make(chan string, 1)
	go func() {
		text, err := os.ReadFile(pipe)
		if err != nil {
			t.Error(err)
		}
		read <- string(text)
	}()
	// The reader may not have opened it yet.
	var answer string
	patience.Until(t, "the upload reaches its reader", func() (ok bool) {
		var status int
		status, answer = upload(much)
		return status == http.StatusOK
	})
	if !strings.Contains(answer, pipe) {
		t.Errorf("got the answer %s, want %q in it", answer, pipe)
	}
	if got := patience.Receive(t, "the end of the pipe", read); got != much {
		t.Errorf("%d bytes came out of %d", len(got), len(much))
	}
	if info, err := os.Lstat(pipe); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("it is %v now, %v, want type fs.ModeNamedPipe and no error", info.Mode(), err)
	}
	// One reader goes away, another stops reading.
	reader, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0)
	must.Do(t, err)
	defer reader.Close()
	f, _, err := openExisting(pipe)
	must.Do(t, err)
	defer f.Close()
	if n, err := (patient{f, 10 * time.Millisecond}).Write(make([]byte, block)); err == nil || n == block || !strings.Contains(err.Error(), "nobody reads") {
		t.Errorf("%d bytes went into a pipe that is full: %v", n, err)
	}
	reader.Close()
	if _, err := (patient{f, pipePatience}).Write([]byte("x")); err == nil || !strings.Contains(err.Error(), "nobody reads") {
		t.Errorf("a pipe whose reader left: %v, want an error with %q", err, "nobody reads")
	}
}

// TestUploadToDevice: a device that stores nothing accepts any amount, even without room
// on the disk.
func TestUploadToDevice(t *testing.T) {
	t.Parallel()
	d := serve(t)
	if err := d.server.roomFor("/dev/null", 1<<60); err != nil {
		t.Error(err)
	}
	res, answer := d.do(t, "POST", "/files?path=/dev/null", strings.Repeat("x", 2*block), "Content-Type", "application/octet-stream")
	if res.StatusCode != http.StatusOK {
		t.Errorf("got %d %s, want http.StatusOK", res.StatusCode, answer)
	}
	info, err := os.Stat("/dev/null")
	if err != nil || info.Mode().Type() != fs.ModeDevice|fs.ModeCharDevice {
		t.Errorf("/dev/null is %v, %v, want type %v and no error", info.Mode(), err, fs.ModeDevice|fs.ModeCharDevice)
	}
}

// TestPipesInTheWay: envd does not block on a pipe or a device where it looks for a
// file or a directory.
func TestPipesInTheWay(t *testing.T) {
	t.Parallel()
	d := serve(t)
	pipe := d.home + "/pipe"
	must.Do(t, unix.Mkfifo(pipe, 0o600))
	for name, err := range map[string]error{
		"compose": appendFile(nil, pipe),
		"list":    func() error { _, err := readDir(pipe); return err }(),
		"device":  appendFile(nil, "/dev/zero"),
	} {
		if err == nil {
			t.Errorf("%s opened it", name)
		}
	}
	d.server.users.passwd.file = pipe
	put(t, d.home+"/x", "x")
	stat, err := d.files().Stat(t.Context(), connect.NewRequest(&filesystem.StatRequest{Path: "x"}))
	if err != nil || stat.Msg.GetEntry().GetName() != "x" {
		t.Errorf("got %v, %v, want name %q and no error", stat, err, "x")
	}
}

// TestComposeOnAFullDisk checks that a source that does not fit is no success.
func TestComposeOnAFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must.Do(t, err)
	defer full.Close()
	source := t.TempDir() + "/source"
	put(t, source, "x")
	must.Is(t, appendFile(full, source), unix.ENOSPC)
}

// TestHugePasswd: the bytes read of a file of names and the number of names kept are
// bounded.
func TestHugePasswd(t *testing.T) {
	t.Parallel()
	name := t.TempDir() + "/passwd"
	put(t, name, "first:x:7:7\n"+strings.Repeat("-\n", 1<<20)+"last:x:8:8\n")
	n := idNames{file: name}
	if n.name(7) != "first" || n.name(8) != "8" {
		t.Errorf("got %q, %q, want %q, %q", n.name(7), n.name(8), "first", "8")
	}
	const most = 4096
	var lines strings.Builder
	for id := range 2 * most {
		fmt.Fprintf(&lines, "n%d:x:%d:\nother:x:%d:\n", id, id, id)
	}
	many := idNames{file: name + " of many"}
	put(t, many.file, lines.String())
	if many.name(most-1) != "n4095" || many.name(most) != "4096" || len(many.names) != most {
		t.Errorf("got %q, %q and %d names in all, want %d names", many.name(most-1), many.name(most), len(many.names), most)
	}
}
