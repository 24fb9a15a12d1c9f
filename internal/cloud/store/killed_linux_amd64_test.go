package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// kills is how many of the writes a process is killed at; SOAK=1 takes all.
const kills = 20

// content says what is in the records' files; "-" stands for a record without any.
type content map[string]string

// steps are what the killed process does, each acknowledged by a line of output.
var steps = []struct {
	do    func(s *Store) error
	after func(c content)
}{
	{savePut("a", "first"), func(c content) { c["sandboxes a"] = "first" }},
	{savePut("b", "other"), func(c content) { c["sandboxes b"] = "other" }},
	{savePut("a", "second"), func(c content) { c["sandboxes a"] = "second" }},
	{func(s *Store) error { s.Note(Running, "r", nil); return nil }, func(c content) { c["running r"] = "-" }},
	{func(s *Store) error { s.Note(Running, "q", nil); return nil }, func(c content) { c["running q"] = "-" }},
	{func(s *Store) error { _, err := s.Put(Keys, "k", []byte("secret"), ""); return err }, func(c content) { c["keys k"] = "-" }},
	{func(s *Store) error { return s.Delete(Running, "r") }, func(c content) { delete(c, "running r") }},
	{func(s *Store) error { return s.Delete(Sandboxes, "kept") }, func(c content) { delete(c, "sandboxes kept") }},
	{saveDiscard, func(content) {}},
	{func(s *Store) error { _, err := s.Put(Sandboxes, "b", nil, ""); return err }, func(c content) { c["sandboxes b"] = "-" }},
	{func(s *Store) error { return s.Delete(Sandboxes, "a") }, func(c content) { delete(c, "sandboxes a") }},
	{(*Store).Close, func(content) {}},
}

func savePut(id, text string) func(*Store) error {
	return func(s *Store) error {
		dir, err := save(s, text)
		if err == nil {
			_, err = s.Put(Sandboxes, id, nil, dir)
		}
		return err
	}
}

func saveDiscard(s *Store) error {
	dir, err := save(s, "unused")
	if err == nil {
		err = s.Discard(dir)
	}
	return err
}

func init() { roles["killed"] = beKilled }

// beKilled does the steps in a directory, after a number and a space, and is killed
// before its write of that number.
func beKilled(arguments string) error {
	number, dir, _ := strings.Cut(arguments, " ")
	at, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(4) // one is stopped at each write
	runtime.LockOSThread()
	writes, err := watchWrites(at)
	if err != nil {
		return fmt.Errorf("watching writes: %w", err)
	}
	s, err := Open(context.Background(), dir)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "open")
	for _, step := range steps {
		if err := step.do(s); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "done")
	}
	fmt.Fprintln(os.Stdout, writes.Load())
	return nil
}

// watched are the calls that change files.
var watched = []uint32{
	unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_MKDIR,
	unix.SYS_MKDIRAT, unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINK, unix.SYS_UNLINKAT, unix.SYS_RMDIR,
	unix.SYS_FCHMODAT, unix.SYS_CHMOD, unix.SYS_SYMLINK, unix.SYS_LINK,
}

// watchWrites has the kernel stop this thread at each call that changes files, counts
// these, and kills the process instead of letting it make the one with the number at.
func watchWrites(at int64) (count *atomic.Int64, err error) {
	var filter []unix.SockFilter
	filter = append(filter, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0})
	for n, number := range watched {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(watched) - n), K: number})
	}
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return nil, errno
	}
	count = new(atomic.Int64)
	go func() {
		for {
			var request struct {
				id         uint64
				pid, flags uint32
				data       [64]byte
			}
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, listener, unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&request))); errno != 0 {
				continue
			}
			if count.Add(1) == at {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			}
			answer := struct {
				id    uint64
				value int64
				errno int32
				flags uint32
			}{id: request.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, listener, unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&answer)))
		}
	}()
	return count, nil
}

// TestKilled kills a process at one write after the other, from the start of the store to
// its end. Whatever it had acknowledged is there, and of the step that it was in all or
// nothing.
func TestKilled(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*testing.T) (string, content){
		"new":  func(t *testing.T) (string, content) { return filepath.Join(t.TempDir(), "state"), content{} },
		"used": leftover,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, before := prepare(t)
			_, writes := killedAt(t, dir, 0)
			wantOne(t, dir, len(steps)+1, contentAfter(before, len(steps)))
			stride := max(1, writes/kills)
			if os.Getenv("SOAK") != "" {
				stride = 1
			}
			for at := 1; at <= writes && !t.Failed(); at += stride {
				dir, before := prepare(t)
				acknowledged, _ := killedAt(t, dir, at)
				opened := max(0, acknowledged-1)
				wantOne(t, dir, at, contentAfter(before, opened), contentAfter(before, opened+1))
			}
		})
	}
}

// leftover is a store that was killed before.
func leftover(t *testing.T) (string, content) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, Sandboxes, "kept", "", fill(t, s, "kept"))
	if _, err := save(s, "unfinished"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{published + "/kept.other/full", trash + "/left/full"} {
		if err := os.MkdirAll(filepath.Join(dir, left), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir, content{"sandboxes kept": "kept"}
}

// contentAfter returns what the store holds after a number of steps.
func contentAfter(before content, done int) content {
	c := maps.Clone(before)
	for _, step := range steps[:min(done, len(steps))] {
		step.after(c)
	}
	return c
}

// killedAt returns how many lines a process wrote that is killed at a write, and how many
// writes one makes that is not killed.
func killedAt(t *testing.T, dir string, at int) (lines, writes int) {
	t.Helper()
	cmd := other(t, "killed", strconv.Itoa(at)+" "+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	exit, failed := errors.AsType[*exec.ExitError](err)
	switch {
	case failed && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGKILL:
	case strings.Contains(stderr.String(), "watching writes") && os.Getenv("CI") != "true":
		t.Skipf("this machine lets no process watch its own calls: %s", stderr.String())
	case err != nil:
		t.Fatalf("killed at %d: %v: %s", at, err, stderr.String())
	default:
		text := strings.Fields(string(output))
		writes, _ = strconv.Atoi(text[len(text)-1])
	}
	return bytes.Count(output, []byte("\n")), writes
}

// wantOne checks that the store in dir holds one of some contents, and nothing beside.
func wantOne(t *testing.T, dir string, at int, want ...content) {
	t.Helper()
	s := open(t, dir)
	got := content{}
	var files []string
	for _, table := range tables {
		all, err := s.Records(table)
		if err != nil {
			t.Fatalf("killed at %d: %v", at, err)
		}
		for _, record := range all {
			text := []byte("-")
			if record.Dir != "" {
				files = append(files, record.Dir)
				if text, err = os.ReadFile(filepath.Join(record.Dir, "text")); err != nil {
					t.Errorf("killed at %d: %v", at, err)
				}
			}
			got[string(table)+" "+record.ID] = string(text)
		}
	}
	slices.Sort(files)
	wantFiles(t, s, files...)
	if notes := strings.Join(s.Notes(), "; "); strings.Contains(notes, "files") && strings.Contains(notes, "record") {
		t.Errorf("killed at %d: got notes %q", at, notes)
	}
	for _, one := range want {
		if cmp.Equal(one, got) {
			return
		}
	}
	t.Errorf("killed at %d: got %v, want one of %v", at, got, want)
}
