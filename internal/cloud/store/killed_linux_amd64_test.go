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

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// kills is the number of tested writes at which a process is killed; with SOAK=1, all writes are
// tested.
const kills = 20

// content maps the records of a store to the contents of their files; "-" stands for a record
// without files.
type content map[string]string

// steps contains the steps of the killed process. The process writes a line of output after each
// step.
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

// beKilled does the steps in a directory until the process is killed before its n-th write.
// arguments are n, a space, and the directory.
func beKilled(arguments string) error {
	number, dir, _ := strings.Cut(arguments, " ")
	at, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(4) // one of the processors is stopped at each write
	runtime.LockOSThread()
	var writes atomic.Int64
	err = watchWrites(func(write) {
		if writes.Add(1) == at {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		}
	})
	if err != nil {
		return err
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
		s.Wait()
		fmt.Fprintln(os.Stdout, "done")
	}
	fmt.Fprintln(os.Stdout, writes.Load())
	return nil
}

// TestKilled kills processes, each before a different write, from the opening of the store to its
// end. Afterwards the store has the result of every step that was reported, and the complete result
// of the interrupted step or none of it.
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

// leftover returns the directory and the content of a store whose earlier process was killed.
func leftover(t *testing.T) (string, content) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, Sandboxes, "kept", "", fill(t, s, "kept"))
	_, err := save(s, "unfinished")
	must.Do(t, err)
	must.Do(t, s.Close())
	for _, left := range []string{published + "/kept.other/full", trash + "/left/full"} {
		must.Do(t, os.MkdirAll(filepath.Join(dir, left), 0o700))
	}
	return dir, content{"sandboxes kept": "kept"}
}

// contentAfter returns the content of the store after the first steps, beginning with before. done
// is the number of these steps.
func contentAfter(before content, done int) content {
	c := maps.Clone(before)
	for _, step := range steps[:min(done, len(steps))] {
		step.after(c)
	}
	return c
}

// killedAt starts a process that is killed at a write, and returns the number of lines that it
// wrote. If the process is not killed, killedAt also returns the number of its writes.
func killedAt(t *testing.T, dir string, at int) (lines, writes int) {
	t.Helper()
	cmd := other(t, "killed", strconv.Itoa(at)+" "+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	exit, failed := errors.AsType[*exec.ExitError](err)
	skipUnwatched(t, stderr.String())
	switch {
	case failed && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGKILL:
	case err != nil:
		t.Fatalf("killed at %d: %v: %s", at, err, stderr.String())
	default:
		text := strings.Fields(string(output))
		writes, _ = strconv.Atoi(text[len(text)-1])
	}
	return bytes.Count(output, []byte("\n")), writes
}

// wantOne checks that the store in dir has one of the wanted contents, and that nothing else is
// left.
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
	notes, err := os.ReadDir(s.path(noted))
	must.Do(t, err)
	for _, note := range notes {
		if table, id, _ := strings.Cut(note.Name(), "."); got[table+" "+id] == "" {
			t.Errorf("killed at %d: the note %s is of no record", at, note.Name())
		}
	}
	for _, one := range want {
		if cmp.Equal(one, got) {
			return
		}
	}
	t.Errorf("killed at %d: got %v, want one of %v", at, got, want)
}
