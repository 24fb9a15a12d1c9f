package sandbox

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestShellLineSurvivesSh lets a real shell parse what shellLine returns.
func TestShellLineSurvivesSh(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh on this machine")
	}
	words := []string{"", " ", "a b", "'", `"`, `\`, "$HOME", "`id`", "$(id)", "*", "?", "[a]", "~", "~root", "#x", "a=b", "-n", "--", "\n", "a\nb\n", "!", "&", ";", "|", "<", ">", "{a,b}", "é", "\xff\xfe", "\x01\x1b[31m", "%s", "''", `'\''`}
	alphabet := []byte("ab '\"\\$`*?[]{}()<>|&;~#!=\n\t-%\xff\x80")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		word := make([]byte, rng.IntN(12))
		for i := range word {
			word[i] = alphabet[rng.IntN(len(alphabet))]
		}
		words = append(words, string(word))
	}
	line, err := shellLine(append([]string{"printf", `%s\0`}, words...))
	must.Do(t, err)
	out, err := exec.CommandContext(t.Context(), sh, "-c", line).Output()
	must.Do(t, err)
	got := strings.Split(string(bytes.TrimSuffix(out, []byte{0})), "\x00")
	if len(got) != len(words) {
		t.Fatalf("%d words came back, want %d", len(got), len(words))
	}
	for i := range words {
		if got[i] != words[i] {
			t.Errorf("word %q came back as %q", words[i], got[i])
		}
	}
}

func TestShellLine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		words []string
		want  string
	}{
		{[]string{"echo $HOME | wc"}, "echo $HOME | wc"},
		{[]string{"ls", "-la", "/srv/a b"}, "ls -la '/srv/a b'"},
		{[]string{"A=1", "env"}, "'A=1' env"},
		{[]string{"echo", "it's"}, `echo 'it'\''s'`},
	}
	for _, tt := range tests {
		got, err := shellLine(tt.words)
		if err != nil {
			t.Errorf("shellLine(%q): %v", tt.words, err)
		}
		if got != tt.want {
			t.Errorf("shellLine(%q) = %q, want %q", tt.words, got, tt.want)
		}
	}
	if _, err := shellLine([]string{"a\x00b"}); err == nil {
		t.Error("a NUL byte is accepted")
	}
}
