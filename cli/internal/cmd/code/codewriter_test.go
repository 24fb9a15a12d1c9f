package code

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestCodeWriter(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain é 漢字\n\ta\r\nb":             "plain é 漢字\n\ta\r\nb",
		"\x1b[1;31mred\x1b[0m":             "red",
		"\x1b[2J\x1b[H\x1b[?1049h":         "",
		"\u009b31mred":                     "red",
		"\x1b]0;title\x07text":             "]0;titletext",
		"\x1b]8;;http://x\x1b\\y":          "]8;;http://x\\y",
		"\x1bPq\x1b\\\x1b_x\x9c":           "Pq\\_x\uFFFD",
		"\x1b\x1b[31mx\x1bc":               "xc",
		"\x1b[ qa\x1b[?25lb":               "ab",
		"\x1b[@a\x1b[3~b\x1b[\x7fc":        "abc",
		"[a\x1b]b[?@~":                     "[a]b[?@~",
		"\x1b[12\nnext":                    "\nnext",
		"\x1b[é":                           "é",
		"back\bspace bell\a null\x00 \x7f": "backspace bell null ",
		"abc\u202edcba\u2028":              "abcdcba",
		"broken \xff \xe2\x82":             "broken \uFFFD \uFFFD",
	} {
		for _, each := range []int{1, 2, 3, len(in)} {
			if got := written(t, in, each); got != want+"end\n" {
				t.Errorf("%q in pieces of %d is %q, want %q", in, each, got, want+"end\n")
			}
		}
	}
}

// written returns a terminal's input when text is written in parts, followed by
// a last line.
func written(t *testing.T, text string, each int) string {
	t.Helper()
	var screen strings.Builder
	w := &codeWriter{w: &screen, terminal: true}
	for rest := []byte(text); len(rest) > 0; {
		n := min(max(each, 1), len(rest))
		if wrote, err := w.Write(rest[:n]); wrote != n || err != nil {
			t.Fatalf("Write = %d, %v", wrote, err)
		}
		rest = rest[n:]
	}
	must.Do(t, w.println("end"))
	return screen.String()
}

// fullAfter is a file on a disk that is full after n writes.
type fullAfter struct{ n int }

func (f *fullAfter) Write(p []byte) (int, error) {
	if f.n--; f.n < 0 {
		return 0, syscall.ENOSPC
	}
	return len(p), nil
}

// TestCodeWriterOnAFullDisk checks that each text that cannot be written is an error, and that a part of a character is not
// lost.
func TestCodeWriterOnAFullDisk(t *testing.T) {
	t.Parallel()
	for n := range 4 {
		disk := &fullAfter{n}
		w := &codeWriter{w: disk, terminal: true}
		_, err := w.Write([]byte("a\xe2")) // its last byte waits for others
		errs := []error{err, w.println("b"), nil}
		if n == 1 && disk.n != -1 {
			t.Errorf("got %d more writes after the end of a part that failed", -1-disk.n)
		}
		errs[2] = w.println("c")
		for i, writes := range []int{0, 2, 3} { // println first ends the part
			if failed := errors.Is(errs[i], syscall.ENOSPC); failed != (n <= writes) || !failed && errs[i] != nil {
				t.Errorf("full after %d writes: got %v", n, errs)
			}
		}
	}
}

// TestCodeWriterToAFile checks that a file gets the bytes of the code as they are.
func TestCodeWriterToAFile(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	w := &codeWriter{w: &file}
	for _, part := range []string{"\x1b[31m\xe2", "\x82\xac\x00"} {
		_, err := w.Write([]byte(part))
		must.Do(t, err)
	}
	must.Do(t, w.println("end"))
	if got, want := file.String(), "\x1b[31m\xe2\x82\xac\x00end\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzCodeWriter(f *testing.F) {
	f.Add("\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x1b\\\u009b2J\x1b[6n\x1b[1;31mred\x1b[0m\x00\u202e\t100%\r", 3)
	f.Add("\x1b[\xc2\x9b1", 1)
	f.Fuzz(func(t *testing.T, text string, each int) {
		got := written(t, text, each)
		if whole := written(t, text, max(len(text), 1)); got != whole {
			t.Fatalf("%q in pieces of %d is %q, at once %q", text, each, got, whole)
		}
		if !utf8.ValidString(got) {
			t.Fatalf("%q is written as %q, want UTF-8", text, got)
		}
		if !strings.HasSuffix(got, "end\n") {
			t.Fatalf("%q is written as %q, want the next line at the end", text, got)
		}
		for _, r := range got {
			if !strings.ContainsRune("\n\t\r", r) && cmdutil.IsActive(r) {
				t.Fatalf("%q is written as %q: a terminal acts on %q", text, got, r)
			}
		}
	})
}
