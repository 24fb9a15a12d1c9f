package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestFold checks that help in a narrow terminal has the same words, and no line that a terminal
// would break in the middle of a word.
func TestFold(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "help", "*.txt"))
	must.Do(t, err)
	if len(files) < 50 {
		t.Fatalf("found %d help texts, want those of all commands", len(files))
	}
	for _, file := range files {
		help, err := os.ReadFile(file)
		must.Do(t, err)
		for _, width := range []int{20, 40, 60, 80} {
			folded := fold(string(help), width)
			if diff := cmp.Diff(strings.Fields(string(help)), strings.Fields(folded)); diff != "" {
				t.Errorf("%s in %d columns (-want +got):\n%s", file, width, diff)
			}
			for line := range strings.Lines(folded) {
				line = strings.TrimSuffix(line, "\n")
				isExample := strings.HasPrefix(line, "  ") && strings.Contains(string(help), line) // which is not broken
				if utf8.RuneCountInString(line) > width && !isExample && strings.Contains(strings.TrimSpace(line), " ") {
					t.Errorf("%s in %d columns has the line %q", file, width, line)
				}
			}
		}
		if got := fold(string(help), 0); got != string(help) {
			t.Errorf("%s changes without a terminal", file)
		}
	}
}

func TestFoldShape(t *testing.T) {
	t.Parallel()
	const help = `A paragraph that goes on
in a second line.

Examples:
  e2bctl exec ID -- a command to copy

Flags:
  -n, --count int   how many copies,
                    1 to 100
      --a-long-name-of-a-flag string   what it does
  -q                short
`
	const want = `A paragraph that goes on
in a second line.

Examples:
  e2bctl exec ID -- a command to copy

Flags:
  -n, --count int
        how many copies, 1 to 100
      --a-long-name-of-a-flag string
        what it does
  -q
        short
`
	if diff := cmp.Diff(want, fold(help, 34)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for width, want := range map[int]string{22: "A paragraph that goes\non in a second line.\n", 100: "A paragraph that goes on\nin a second line.\n"} {
		if got, _, _ := strings.Cut(fold(help, width), "\nExamples"); got != want {
			t.Errorf("in %d columns: got %q, want %q", width, got, want)
		}
	}
}

// TestHelpThatCannotBeWritten checks that help on a full disk is a failure.
func TestHelpThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, words := range [][]string{{"--help"}, {"help", "ci"}, {"cp", "--help"}} {
		var errs bytes.Buffer
		if status := Run(t.Context(), nil, fullDisk{}, &errs, words); status != 1 || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%q: status %d and %q, want 1 and the reason", words, status, &errs)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
