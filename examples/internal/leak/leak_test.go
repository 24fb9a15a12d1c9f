package leak

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

func TestGuises(t *testing.T) {
	t.Parallel()
	s := New("sk-")
	for n, text := range []string{
		s.Text, "key=" + s.Text + ";", fmt.Sprintf("%x", "a"+s.Text), fmt.Sprintf("%X", s.Text), fmt.Sprintf("%q", s.Text),
		strings.Join(strings.Split("x"+s.Text, ""), "\x00") + "\x00", strings.Join(strings.Split("x"+s.Text, ""), "\x00\x00\x00") + "\x00\x00\x00",
		base64.StdEncoding.EncodeToString([]byte("Bearer " + s.Text + ":")),
		base64.StdEncoding.EncodeToString([]byte("Bearer  " + s.Text + ":")),
		base64.URLEncoding.EncodeToString([]byte("Bearer   " + s.Text + "::")),
	} {
		found := slices.ContainsFunc(s.guises(), func(guise []byte) bool { return bytes.Contains([]byte(text), guise) })
		none := slices.ContainsFunc(New("sk-").guises(), func(guise []byte) bool { return bytes.Contains([]byte(text), guise) })
		if !found || none {
			t.Errorf("%d: found %v, another found %v", n, found, none)
		}
	}
}

// TestSearchFinds checks that the search finds secrets hidden in every place of a sandbox.
func TestSearchFinds(t *testing.T) {
	t.Parallel()
	sb := Cloud(t).Create(t)
	s := New("sk-")
	reversed := []byte(s.Text)
	slices.Reverse(reversed)

	var places []string
	start := func(kind, command string, p *sandbox.CommandParams) {
		t.Helper()
		started, err := sb.Commands.Start(t.Context(), command, p)
		must.Do(t, err)
		places = append(places, fmt.Sprintf("%s of %d", kind, started.PID()))
	}
	start("environ", "exec sleep 600", &sandbox.CommandParams{Envs: map[string]string{"TOKEN": s.Text}})
	start("environ", "exec sleep 600", &sandbox.CommandParams{Envs: map[string]string{"TOKEN": s.Text}, User: "root"})
	start("cmdline", "exec -a "+s.Text+" sleep 600", nil)
	for path, content := range map[string]string{
		"/tmp/.config/token": base64.StdEncoding.EncodeToString([]byte("me:" + s.Text)),
		"/dev/shm/token":     hex.EncodeToString([]byte(s.Text)),
		"/tmp/log":           strings.Repeat("-", 4<<20-5) + string(reversed), // across the border of two parts
	} {
		must.Do(t, sb.Files.WriteText(t.Context(), path, content, nil))
		places = append(places, "file "+path)
	}
	if _, err := sb.Commands.Run(t.Context(), "mkdir /tmp/"+s.Text+"; ln -s "+s.Text+" /tmp/link", nil); err != nil {
		t.Fatal(err)
	}
	places = append(places, "name /tmp/"+s.Text, "name /tmp/link")

	inside := map[sandbox.ContextID]map[string]bool{} // the places in which code finds it, by context
	for _, kernel := range []struct {
		code string
		in   map[string]bool
	}{
		{"print('" + s.Text + "')", map[string]bool{"In": true, "history": true, "environment": false}},
		{"wide = " + unmasked(s) + ".decode() + '\u20ac'", map[string]bool{"In": false, "history": false, "variables": true}},
		{"import os; os.environ['TOKEN'] = " + unmasked(s) + ".decode()", map[string]bool{"In": false, "environment": true}},
		{"import mmap, tempfile\nf = tempfile.TemporaryFile(); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096)\nm[:" + fmt.Sprint(len(s.Text)) + "] = " + unmasked(s),
			map[string]bool{"In": false, "variables": false}},
	} {
		c, err := sb.Contexts.Create(t.Context(), nil)
		must.Do(t, err)
		execution, err := sb.RunCode(t.Context(), kernel.code+"\nimport os; os.getpid()", &sandbox.RunCodeParams{Context: c.ID})
		must.Do(t, err)
		inside[c.ID] = kernel.in
		places = append(places, "memory of "+execution.Text())
	}

	f, err := s.Search(t.Context(), sb)
	must.Do(t, err)
	for _, place := range places {
		if !slices.Contains(f.Found, place) {
			t.Errorf("not found: %s", place)
		}
	}
	kernels, err := s.SearchKernels(t.Context(), sb)
	must.Do(t, err)
	searched := 0
	for _, kernel := range kernels {
		in, planted := inside[kernel.Context]
		if !planted { // the kernel of the default context
			continue
		}
		searched++
		for place, want := range in {
			if slices.Contains(kernel.Found, place) != want {
				t.Errorf("in the kernel with %v it is in %q", in, kernel.Found)
			}
		}
		if !slices.Contains(f.Memories, kernel.PID) {
			t.Errorf("the memory of the kernel %d was not read", kernel.PID)
		}
	}
	if searched != len(inside) {
		t.Errorf("%d kernels were searched", searched)
	}
	if t.Failed() {
		t.Logf("%+v", f)
	}
}

// TestSearchLeavesNothing checks that no search leaves the secret for the next one to find.
func TestSearchLeavesNothing(t *testing.T) {
	t.Parallel()
	sb := Cloud(t).Create(t)
	s := New("sk-")
	for range 2 {
		if found, err := s.Everywhere(t.Context(), sb); err != nil || len(found) > 0 {
			t.Errorf("found: %q, %v", found, err)
		}
	}
}

// unmasked returns a Python expression whose value is the secret, although its text
// is not.
func unmasked(s Secret) string {
	return fmt.Sprintf("bytes(b ^ %d for b in bytes.fromhex('%s'))", mask, masked([]byte(s.Text)))
}
