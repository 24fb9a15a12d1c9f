package local

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/must"
)

// Nothing but the bytes of a name reaches the terminal.
func TestASCIIHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"pypi.org": "pypi.org", "PyPI.org": "pypi.org", "_dmarc.a-b.test": "_dmarc.a-b.test", "192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::1",
		"пример.test": "xn--e1afmkfd.test", "аpple.com": "xn--pple-43d.com", // a Cyrillic letter
		"a\x1b[2Jb.test": "", "a\nb.test": "", "a b.test": "", "a\u202eb\x00.test": "", "\xff.test": "", "": "", "fe80::1%\x1b[2J": "",
		strings.Repeat("a.", 126) + "b": strings.Repeat("a.", 126) + "b", strings.Repeat("a.", 126) + "bb": "",
	} {
		if got, ok := asciiHost(host); ok != (want != "") || ok && got != want {
			t.Errorf("%q: got %q, %t, want %q", host, got, ok, want)
		}
	}
}

// asking returns an asker, the keyboard of its terminal, and the text on its screen.
func asking(t *testing.T, dir string) (*asker, *io.PipeWriter, *cmdtest.Output) {
	t.Helper()
	in, keyboard := io.Pipe()
	t.Cleanup(func() { must.Do(t, keyboard.Close()) })
	screen := new(cmdtest.Output)
	return newAsker(&cmdutil.IOStreams{In: in, Err: screen}, dir), keyboard, screen
}

// types types a line.
func types(t *testing.T, keyboard io.Writer, line string) {
	t.Helper()
	_, err := io.WriteString(keyboard, line+"\n")
	must.Do(t, err)
}

// Only an answer with yes or always allows a port of a host, and always is not asked again.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{
		"y": true, "yes": true, " Y ": true, "YES": true, "a": true, "always": true, "Always": true,
		"": false, "n": false, "no": false, "ye": false, "allow": false, "y y": false,
	} {
		for _, dir := range []string{"", t.TempDir()} {
			synctest.Test(t, func(t *testing.T) {
				a, keyboard, screen := asking(t, dir)
				answered := make(chan bool, 1)
				go func() { answered <- a.ask(t.Context(), "i\x1b1", "Example.test", 443) }()
				<-time.After(readingTime)
				synctest.Wait()
				question := "sandbox " + cmdutil.Printable("i\x1b1") + " wants to reach example.test:443: allow? [y]es / [N]o / [a]lways "
				if screen.String() != question {
					t.Errorf("the screen has %q, want %q", screen.String(), question)
				}
				types(t, keyboard, answer)
				if got := <-answered; got != want {
					t.Errorf("%q with state %t: got %t, want %t", answer, dir != "", got, want)
				}
				isAlways := strings.HasPrefix(strings.ToLower(answer), "a") && want
				if dir != "" {
					hosts, err := localcloud.AllowedHosts(dir)
					must.Do(t, err)
					if diff := cmp.Diff(map[bool][]string{true: {"example.test:443"}}[isAlways], hosts); diff != "" {
						t.Errorf("%q: the allowed (-want +got):\n%s", answer, diff)
					}
				}
				if !isAlways {
					return
				}
				if !a.ask(t.Context(), "i2", "example.test", 443) || screen.String() != question {
					t.Errorf("%q with state %t: the screen has %q, want no question again", answer, dir != "", screen.String())
				}
				ended, end := context.WithCancel(t.Context())
				end()
				if a.ask(ended, "i2", "example.test", 80) || a.ask(ended, "i2", "other.test", 443) {
					t.Errorf("%q with state %t: another port or host is allowed, too", answer, dir != "")
				}
			})
		}
	}
}

// The end of the time for an answer is no yes, and neither is the end of the input.
func TestAnswersOfNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, keyboard, screen := asking(t, "")
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if a.ask(ctx, "i1", "a.test", 1) || ctx.Err() == nil {
			t.Error("nobody answered the question, and it is a yes")
		}
		brief, end := context.WithTimeout(t.Context(), readingTime/2)
		defer end()
		if a.ask(brief, "i1", "a.test", 1) || brief.Err() == nil {
			t.Error("the end of the question's time is a yes")
		}
		const question = "sandbox i1 wants to reach a.test:1: allow? [y]es / [N]o / [a]lways \nno answer in 30 seconds: no\n"
		if screen.String() != question+question {
			t.Errorf("the screen has %q, want %q twice", screen.String(), question)
		}
		if a.ask(t.Context(), "i1", "\x1b", 1) || strings.Count(screen.String(), "allow?") != 2 {
			t.Errorf("the screen has %q, want no question about a host that cannot be", screen.String())
		}
		must.Do(t, keyboard.Close())
		synctest.Wait()
		begun := time.Now()
		for range 2 {
			if a.ask(t.Context(), "i1", "a.test", 1) {
				t.Error("the end of the input is a yes")
			}
		}
		if time.Since(begun) != 0 {
			t.Errorf("the end of the input was an answer after %v, want at once", time.Since(begun))
		}
	})
}

// One question is on the screen at a time. The end of its context is a no, and so is that of one that waits.
func TestQuestionsInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, keyboard, screen := asking(t, "")
		first, endFirst := context.WithCancel(t.Context())
		second, endSecond := context.WithCancel(t.Context())
		answers := []chan bool{make(chan bool, 1), make(chan bool, 1), make(chan bool, 1)}
		go func() { answers[0] <- a.ask(first, "i1", "a.test", 1) }()
		synctest.Wait()
		go func() { answers[1] <- a.ask(second, "i2", "b.test", 2) }()
		endSecond()
		if <-answers[1] || strings.Contains(screen.String(), "b.test") {
			t.Errorf("the screen has %q, want one question", screen.String())
		}
		go func() { answers[2] <- a.ask(t.Context(), "i3", "a.test", 1) }()
		endFirst()
		if <-answers[0] {
			t.Error("no answer is a yes")
		}
		<-time.After(readingTime)
		synctest.Wait()
		if !strings.Contains(screen.String(), "\nno answer in 30 seconds: no\nsandbox i3 wants") {
			t.Errorf("the screen has %q, want the end of the first question before the next", screen.String())
		}
		types(t, keyboard, "a")
		if !<-answers[2] {
			t.Error("the third question was answered with always, and the answer is no")
		}
	})
}

// An answer that cannot be kept holds once, and a list that cannot be read allows nothing.
func TestAnswersThatAreNotKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, localcloud.AllowHost(dir, "a.test:1"))
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	synctest.Test(t, func(t *testing.T) {
		a, keyboard, screen := asking(t, dir)
		if len(entries) != 1 || !a.ask(t.Context(), "i1", "a.test", 1) {
			t.Fatalf("got %d files, want one that allows the host", len(entries))
		}
		must.Do(t, os.WriteFile(filepath.Join(dir, entries[0].Name()), []byte("{"), 0o600))
		answered := make(chan bool, 1)
		go func() { answered <- a.ask(t.Context(), "i1", "a.test", 1) }()
		<-time.After(readingTime)
		synctest.Wait()
		types(t, keyboard, "a")
		if got := <-answered; !got || !strings.Contains(screen.String(), "yes, but not always: ") {
			t.Errorf("got %t and the screen %q, want yes and that it is not kept", got, screen.String())
		}
	})
}

// TestAllowedAreShown checks the lines and the JSON of ports that are allowed.
func TestAllowedAreShown(t *testing.T) {
	t.Parallel()
	addresses := []string{"a.test:443", "[2001:db8::1]:80", "b.test", "c.test:x", "d\x1b.test:1"}
	var out strings.Builder
	must.Do(t, showAllowed(factory(t, &out), addresses))
	lines := "a.test:443\n[2001:db8::1]:80\nb.test\nc.test:x\n" + cmdutil.Printable("d\x1b.test:1") + "\n"
	if out.String() != lines {
		t.Errorf("got %q, want %q", out.String(), lines)
	}
	for n := range 2 {
		must.Is(t, showAllowed(factory(t, &fullAfter{n: n}), addresses), errFull)
	}
	for address, want := range map[string]allowedView{
		"a.test:443": {Host: "a.test", Port: 443}, "[2001:db8::1]:80": {Host: "2001:db8::1", Port: 80}, "b.test": {Host: "b.test"}, "c.test:x": {Host: "c.test:x"},
	} {
		if host, port := splitPort(address); host != want.Host || port != want.Port {
			t.Errorf("%s: got %s and %d, want %s and %d", address, host, port, want.Host, want.Port)
		}
	}
}
