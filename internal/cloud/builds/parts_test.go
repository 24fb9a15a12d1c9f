package builds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	get := func(name string) (string, bool) {
		value, set := map[string]string{"A": "1", "HOME": "/h", "_b2": "x", "VER": "1.2.3", "EMPTY": ""}[name]
		return value, set
	}
	for text, want := range map[string]string{
		"": "", "plain": "plain", "$A": "1", "${A}": "1", "$A$HOME/x": "1/h/x", "$_b2-": "x-", "$AB": "", "${A}B": "1B",
		"${NO:-word}": "word", "${A:-word}": "1", "${A:+word}": "word", "${NO:+word}": "", `\$A`: "$A", `a\b`: `a\b`,
		"${VER%.*}": "1.2", "${VER%%.*}-": "1-", "${VER#*.}": "2.3", "${VER/./_}": "1_2.3", "${A:+:$A}": ":1", "${NO:+:$A}": "", "${NO:-${HOME}/x}y": "/h/xy",
		"${NO-word}": "word", "${EMPTY-word}": "", "${EMPTY:-word}": "word", "${NO:-it's}": "it's", "${NO:-$NO}": "", `${NO:-\$A}`: "$A", "${A:-{}}": "1}",
		`${NO:-\}x}y`: "}xy", `${NO:-\}`: `${NO:-\}`, `${NO:-\\}x`: `\x`, `${A\}}`: `${A\}}`,
		"$": "$", "$1": "$1", "${": "${", "${}": "${}", "${A": "${A", "${A!}": "${A!}", "${1}": "${1}", "${1:-x}": "${1:-x}", "${@}": "${@}", "${-x}": "${-x}", "$(id)": "$(id)", "`id`": "`id`", "$$A": "$1",
	} {
		if got := expand(text, get); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestNameOfAVariable tries every byte at the beginning of a name and inside it.
func TestNameOfAVariable(t *testing.T) {
	t.Parallel()
	for b := range 256 {
		c := string([]byte{byte(b)})
		letter := strings.Contains("_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", c)
		want := map[string]int{c: 0, "x" + c: 1, c + "-": 0, "x" + c + "-": 1}
		if letter {
			want = map[string]int{c: 1, "x" + c: 2, c + "-": 1, "x" + c + "-": 2}
		} else if strings.Contains("0123456789", c) {
			want["x"+c], want["x"+c+"-"] = 2, 2
		}
		for text, want := range want {
			if got := nameLength(text); got != want {
				t.Errorf("%q: got %d, want %d", text, got, want)
			}
		}
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	s := newWorld().serve(t, t.TempDir(), func(o *Options) {
		o.Engine = engine.Room
		o.Target = func(_ context.Context, name engine.Name) (Target, error) {
			if name == engine.Docker {
				return Target{Images: &fakeImages{}}, nil
			}
			return Target{}, nil
		}
	})
	for reference, want := range map[string]bool{
		"e2bdev/base": true, "e2bdev/base:latest": true, "e2bdev/code-interpreter:v1": true, "docker.io/e2bdev/base": true, "e2bdev/base@sha256:00": true,
		"": false, "base": false, "python:3": false, "e2bdev/basement": false, "localhost:5000/e2bdev/base": false, "e2bdev/base/x": false,
	} {
		err := s.CheckImage(t.Context(), templates.Build{}, reference)
		if (err == nil) != want {
			t.Errorf("%q: got %v, want %v", reference, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "the image '"+reference+"'") {
			t.Errorf("got %q, want the image in it", err)
		}
		if err := s.CheckImage(t.Context(), templates.Build{Content: templates.Content{Engine: engine.Docker}}, reference); err != nil {
			t.Errorf("%q of an engine that has images: got %v", reference, err)
		}
	}
}

// TestLines checks that output is logged by lines of limited length.
func TestLines(t *testing.T) {
	t.Parallel()
	l := &Log{}
	w := &lines{log: l, level: slog.LevelInfo, step: "1"}
	for _, part := range []string{"a", "b\nc\n\nd\r\n", "10%\r50%\r100%\n", "\rafter a return\n", strings.Repeat("x", maxLine), strings.Repeat("y", maxLine) + "\nbad \xff byte\nend"} {
		if n, err := io.WriteString(w, part); n != len(part) || err != nil {
			t.Fatalf("got %d and error %v, want %d", n, err, len(part))
		}
	}
	w.close()
	w.close() // nothing is left
	var got []string
	for _, e := range l.Lines(Select{Limit: 100}) {
		got = append(got, e.Message)
	}
	want := []string{"ab", "c", "", "d", "100%", "after a return", strings.Repeat("x", maxLine) + "…", "bad � byte", "end"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if w.last != "end" {
		t.Errorf("got the last line %q, want end", w.last)
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var entries []templates.Entry
	for i, level := range []slog.Level{slog.LevelInfo, slog.LevelDebug, slog.LevelWarn, slog.LevelInfo, slog.LevelError} {
		entries = append(entries, templates.Entry{At: at.Add(time.Duration(i) * time.Second), Level: level, Message: fmt.Sprint(i)})
	}
	for want, s := range map[string]Select{
		"01234": {Level: slog.LevelDebug, Limit: 100}, "234": {Level: slog.LevelDebug, Offset: 2, Limit: 100}, "0234": {Limit: 100},
		"34": {Offset: 2, Limit: 100}, "23": {Offset: 1, Limit: 2}, "": {Offset: 9, Limit: 100}, "24": {Level: slog.LevelWarn, Limit: 100},
		"43": {Backward: true, Limit: 2}, "4320": {Backward: true, Limit: 100},
		"3": {From: at.Add(3 * time.Second), Limit: 1}, "20": {Backward: true, Until: at.Add(2 * time.Second), Limit: 100},
	} {
		var got string
		for _, e := range selected(entries, s) {
			got += e.Message
		}
		if got != want {
			t.Errorf("%+v: got %q, want %q", s, got, want)
		}
	}
	begun := time.Now()
	var l Log
	l.add(slog.LevelWarn, "2", "text")
	got := l.Lines(Select{Limit: 1})
	want := []templates.Entry{{At: got[0].At, Level: slog.LevelWarn, Step: "2", Message: "text"}}
	if diff := cmp.Diff(want, got); diff != "" || got[0].At.Before(begun) || got[0].At.Location() != time.UTC {
		t.Errorf("got a line of %v, want one of after %v in UTC (-want +got):\n%s", got[0].At, begun, diff)
	}
	if got := selected(entries, Select{Limit: 0}); got == nil || len(got) > 0 {
		t.Errorf("got %v, want an empty list", got)
	}
}

func TestUploads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newWorld()
	s := w.serve(t, dir)
	hash := strings.Repeat("a", 64)
	add := func(text string, size int64) error { return s.Uploads().Add(hash, strings.NewReader(text), size) }
	read := func() string {
		t.Helper()
		file, size, err := s.Uploads().open(hash)
		must.Do(t, err)
		defer file.Close()
		text, err := io.ReadAll(file)
		if err != nil || int64(len(text)) != size {
			t.Fatalf("got %d of %d bytes and error %v", len(text), size, err)
		}
		return string(text)
	}
	must.Is(t, writeArchive(filepath.Join(dir, "none", archiveName), strings.NewReader("x"), 1), fs.ErrNotExist)
	if err := add("short", 6); !errors.Is(err, ErrCutOff) || s.Uploads().Has(hash) {
		t.Errorf("cut off: got %v, want ErrCutOff and nothing kept", err)
	}
	cut := io.MultiReader(strings.NewReader("shor"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if err := s.Uploads().Add(hash, cut, 5); !errors.Is(err, ErrCutOff) || s.Uploads().Has(hash) {
		t.Errorf("cut off by the connection: got %v, want ErrCutOff and nothing kept", err)
	}
	if err := add("first and more", 5); err != nil || read() != "first" {
		t.Errorf("got %q and error %v, want as much as was said", read(), err)
	}
	file, _, err := s.Uploads().open(hash)
	must.Do(t, err)
	defer file.Close()
	var twice sync.WaitGroup
	for range 2 {
		twice.Go(func() {
			if err := s.Uploads().Add(hash, bytes.NewReader(make([]byte, 1<<20)), 1<<20); err != nil {
				t.Error(err)
			}
		})
	}
	twice.Wait()
	if text, err := io.ReadAll(file); string(text) != "first" || err != nil {
		t.Errorf("while it was replaced: got %q and error %v, want what it was", text, err)
	}
	s.kill(t)
	s = w.serve(t, dir)
	if got := read(); len(got) != 1<<20 {
		t.Errorf("after a restart: got %d bytes, want 1 MiB", len(got))
	}
	for hash, want := range map[string]bool{hash: true, "": false, strings.Repeat("A", 64): false, strings.Repeat("../", 21) + "x": false, hash + "a": false} {
		if ValidHash(hash) != want {
			t.Errorf("%q: want %v", hash, want)
		}
	}
}

// TestSpace checks that cached steps and archives are removed to make room, oldest first, and that
// the layers of templates stay.
func TestSpace(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.size = 1 << 20
	const cap = 4<<20 + 1<<19
	s := w.serve(t, t.TempDir(), func(o *Options) { o.Cap = cap })
	build := func(name string, lines ...string) *templates.Failure {
		t.Helper()
		id := s.request(t, name)
		s.begin(t, id, lines...)
		status, _ := s.end(t, id)
		return status.Failure
	}
	if f := build("a", "a1", "a2"); f != nil { // a2 is in use
		t.Fatal(f)
	}
	must.Do(t, s.Uploads().Add(strings.Repeat("0", 64), bytes.NewReader(make([]byte, 1<<20)), 1<<20))
	space, err := s.Space(t.Context())
	must.Do(t, err)
	space.Bytes, space.Layers.Bytes, space.Cache.Bytes = space.Bytes>>20, space.Layers.Bytes>>20, space.Cache.Bytes>>20
	if diff := cmp.Diff(Space{Bytes: 3, Cap: cap, Layers: Taken{1, 1}, Cache: Taken{2, 1}, Uploads: Taken{1, 1 << 20}}, space); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if f := build("b", "b1", "b2", "b3"); f != nil {
		t.Fatal(f)
	}
	if space, err := s.Space(t.Context()); err != nil || space.Bytes > cap || space.Uploads.Count > 0 {
		t.Errorf("got %+v and error %v, want the oldest step and the archive to have made room", space, err)
	}
	for _, name := range []string{"a", "b"} {
		if _, _, err := s.all.Find(templates.ParseReference(name)); err != nil {
			t.Error(err)
		}
	}
	var last *templates.Failure
	for _, name := range []string{"c", "d", "e", "f"} { // templates keep these layers
		if last = build(name, name); last != nil {
			break
		}
	}
	if last == nil || !strings.HasPrefix(last.Message, "no space: ") {
		t.Errorf("got %+v, want no space", last)
	}
}

// TestDamagedCache checks that unreadable entries of the cache are dropped.
func TestDamagedCache(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newWorld()
	s := w.serve(t, dir)
	id := s.request(t, "job")
	s.begin(t, id, "print")
	s.end(t, id)
	for key, value := range map[string]string{"a": "{", "b": `{"State":{"Layers":["gone"]}}`} {
		_, err := s.store.Put(store.Cache, key, []byte(value), "")
		must.Do(t, err)
	}
	s.kill(t)
	s = w.serve(t, dir)
	if all, err := s.store.Records(store.Cache); err != nil || len(all) != 1 {
		t.Errorf("got %d records and error %v, want the good one", len(all), err)
	}
}

// TestUsersByID checks that ids and groups name users of built-in templates as in Docker, and that
// unknown ids and groups are refused.
func TestUsersByID(t *testing.T) {
	t.Parallel()
	for _, oneUser := range []string{"", "there is only one user id"} {
		for name, want := range map[string]string{
			"0": "root", "0:0": "root", "root:root": "root", "root:0": "root", "1000": "user", "1000:1000": "user", "user:user": "user", "node:node": "node",
			"2000": "2000", "2000:2001": "2000:2001", "user:staff": "user:staff",
		} {
			s := newWorld().serve(t, t.TempDir(), func(o *Options) {
				o.Target = func(context.Context, engine.Name) (Target, error) { return Target{OneUser: oneUser}, nil }
			})
			id := s.request(t, "job")
			must.Do(t, s.Start(id.template, id.build, Spec{FromImage: "e2bdev/base", Steps: []Step{{Type: "USER", Args: []string{name}}, {Type: "RUN", Args: []string{"print x"}}}}))
			status, log := s.end(t, id)
			if oneUser != "" && want != "root" && want != "user" {
				if status.Status != templates.Failed || !strings.Contains(status.Failure.Message, oneUser) {
					t.Errorf("USER %s with one id: got %s %+v, want it to be refused", name, status.Status, status.Failure)
				}
				continue
			}
			_, build, err := s.all.Find(templates.ParseReference("job"))
			if err != nil || build.User != want {
				t.Errorf("USER %s: got %+v and error %v, want %s:\n%s", name, build, err, want, log)
			}
		}
	}
}
