package main

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/e2bctl/e2bctl/sandbox"
)

//go:embed testdata/search.py
var searchSandbox string

//go:embed testdata/kernel.py
var searchKernel string

// secret is what a sandbox is searched for.
type secret struct {
	text  string
	since time.Time // nothing that is older holds it
}

func newSecret() secret { return secret{"sk-" + rand.Text(), time.Now()} }

// guises are the forms in which a secret is recognised.
func (s secret) guises() [][]byte {
	text := []byte(s.text)
	reversed := slices.Clone(text)
	slices.Reverse(reversed)
	list := [][]byte{
		text, reversed, []byte(hex.EncodeToString(text)), []byte(strings.ToUpper(hex.EncodeToString(text))),
	}
	// As Python keeps strings with other characters in them.
	var two, four []byte
	for _, unit := range utf16.Encode([]rune(s.text)) {
		two = append(two, byte(unit), byte(unit>>8))
		four = append(four, byte(unit), byte(unit>>8), 0, 0)
	}
	list = append(list, two, four)
	// In base64 it looks different after 0, 1 and 2 other bytes; what depends on
	// its neighbours is left out.
	for before := range 3 {
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			encoded := encoding.EncodeToString(append(make([]byte, before), text...))
			list = append(list, []byte(encoded[(before*8+5)/6:(before+len(text))*8/6]))
		}
	}
	slices.SortFunc(list, bytes.Compare)
	return slices.CompactFunc(list, bytes.Equal)
}

const mask = 0x5a

// masked are the guises as a sandbox is told them, a list in Python: it must not
// learn the secret from the search.
func (s secret) masked() string {
	var list []string
	for _, guise := range s.guises() {
		list = append(list, "'"+masked(guise)+"'")
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func masked(text []byte) string {
	hidden := slices.Clone(text)
	for i := range hidden {
		hidden[i] ^= mask
	}
	return hex.EncodeToString(hidden)
}

// findings are what a search of a sandbox gave.
type findings struct {
	Found    []string // where the secret is
	Refused  []string // where neither root nor the user may look
	Memories []int    // processes whose memory was read
	Files    int      // that were read
	Bytes    int      // of memory
}

// search looks through a whole sandbox from outside of its kernels, as each of its
// users: not even root may read the memory of another's processes.
func (s secret) search(ctx context.Context, sb *sandbox.Sandbox) (*findings, error) {
	program := fmt.Sprintf("%s\nrun(%s, %d, %d)\n", searchSandbox, s.masked(), mask, s.since.Unix())
	all, refused := &findings{}, map[string]int{}
	users := []string{"root", "user"}
	for _, user := range users {
		result, err := sb.Commands.Run(ctx, "exec python3 -I -", &sandbox.CommandParams{User: user, Stdin: strings.NewReader(program), Timeout: 5 * time.Minute})
		if err != nil {
			return nil, err
		}
		var f findings
		if err := json.Unmarshal([]byte(result.Stdout), &f); err != nil {
			return nil, err
		}
		all.Found = append(all.Found, f.Found...)
		all.Memories = append(all.Memories, f.Memories...)
		all.Files += f.Files
		all.Bytes += f.Bytes
		for _, place := range f.Refused {
			if refused[place]++; refused[place] == len(users) {
				all.Refused = append(all.Refused, place)
			}
		}
	}
	return all, nil
}

// searchContext looks from inside of a kernel. pid is the kernel's.
func (s secret) searchContext(t *testing.T, sb *sandbox.Sandbox, id string) (pid int, found []string) {
	t.Helper()
	run, err := sb.Begin(t.Context(), &sandbox.RunParams{Context: id})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	step, err := run.Exec(t.Context(), fmt.Sprintf("%s\n_search(%s, %d)", searchKernel, s.masked(), mask))
	if err != nil || step.Error != nil {
		t.Fatalf("search in the context %s: %v\n%s", id, err, step.Observation())
	}
	var answer struct {
		PID   int      `py:"pid"`
		Found []string `py:"found"`
	}
	if err := step.Value.Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return answer.PID, answer.Found
}

func TestGuises(t *testing.T) {
	t.Parallel()
	s := newSecret()
	for n, text := range []string{
		s.text, "key=" + s.text + ";", fmt.Sprintf("%x", "a"+s.text), fmt.Sprintf("%X", s.text), fmt.Sprintf("%q", s.text),
		strings.Join(strings.Split("x"+s.text, ""), "\x00") + "\x00", strings.Join(strings.Split("x"+s.text, ""), "\x00\x00\x00") + "\x00\x00\x00",
		base64.StdEncoding.EncodeToString([]byte("Bearer " + s.text + ":")),
		base64.StdEncoding.EncodeToString([]byte("Bearer  " + s.text + ":")),
		base64.URLEncoding.EncodeToString([]byte("Bearer   " + s.text + "::")),
	} {
		found := slices.ContainsFunc(s.guises(), func(guise []byte) bool { return bytes.Contains([]byte(text), guise) })
		none := slices.ContainsFunc(newSecret().guises(), func(guise []byte) bool { return bytes.Contains([]byte(text), guise) })
		if !found || none {
			t.Errorf("%d: found %v, another found %v", n, found, none)
		}
	}
}

// What is hidden in a sandbox, the search finds, each in its place.
func TestSearchFinds(t *testing.T) {
	t.Parallel()
	sb := create(t, cloud(t))
	s := newSecret()
	reversed := []byte(s.text)
	slices.Reverse(reversed)

	var places []string
	start := func(kind, command string, envs map[string]string) {
		t.Helper()
		started, err := sb.Commands.Start(t.Context(), command, &sandbox.CommandParams{Envs: envs})
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, fmt.Sprintf("%s of %d", kind, started.PID()))
	}
	start("environ", "exec sleep 600", map[string]string{"TOKEN": s.text})
	start("cmdline", "exec -a "+s.text+" sleep 600", nil)
	for path, content := range map[string]string{
		"/tmp/.config/token": base64.StdEncoding.EncodeToString([]byte("me:" + s.text)),
		"/dev/shm/token":     hex.EncodeToString([]byte(s.text)),
		"/tmp/log":           strings.Repeat("-", 4<<20-5) + string(reversed), // across the border of two pieces
	} {
		if err := sb.Files.WriteText(t.Context(), path, content, nil); err != nil {
			t.Fatal(err)
		}
		places = append(places, "file "+path)
	}
	if _, err := sb.Commands.Run(t.Context(), "mkdir /tmp/"+s.text+"; ln -s "+s.text+" /tmp/link", nil); err != nil {
		t.Fatal(err)
	}
	places = append(places, "name /tmp/"+s.text, "name /tmp/link")

	inside := map[string]map[string]bool{} // by context: where code finds it
	for _, kernel := range []struct {
		code string
		in   map[string]bool
	}{
		{"print('" + s.text + "')", map[string]bool{"In": true, "history": true, "environment": false}},
		{"wide = " + unmasked(s) + ".decode() + '\u20ac'", map[string]bool{"In": false, "history": false, "variables": true}},
		{"import os; os.environ['TOKEN'] = " + unmasked(s) + ".decode()", map[string]bool{"In": false, "environment": true}},
		{"import mmap, tempfile\nf = tempfile.TemporaryFile(); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096)\nm[:" + fmt.Sprint(len(s.text)) + "] = " + unmasked(s),
			map[string]bool{"In": false, "variables": false}},
	} {
		c, err := sb.CreateContext(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		execution, err := sb.RunCode(t.Context(), kernel.code+"\nimport os; os.getpid()", &sandbox.RunCodeParams{Context: c.ID})
		if err != nil {
			t.Fatal(err)
		}
		inside[c.ID] = kernel.in
		places = append(places, "memory of "+execution.Text())
	}

	f, err := s.search(t.Context(), sb)
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range places {
		if !slices.Contains(f.Found, place) {
			t.Errorf("not found: %s", place)
		}
	}
	for id, in := range inside {
		_, found := s.searchContext(t, sb, id)
		for place, want := range in {
			if slices.Contains(found, place) != want {
				t.Errorf("in the kernel with %v it is in %q", in, found)
			}
		}
	}
	if t.Failed() {
		t.Logf("%+v", f)
	}
}

// unmasked is an expression in Python whose value is the secret, though its text
// is not.
func unmasked(s secret) string {
	return fmt.Sprintf("bytes(b ^ %d for b in bytes.fromhex('%s'))", mask, masked([]byte(s.text)))
}
