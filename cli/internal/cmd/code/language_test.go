package code

import (
	"strings"
	"testing"
)

func TestLanguageOf(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"a.py": "", "a": "", "-": "", "dir.js/a.py": "", "a.js": "javascript", "dir/a.MJS": "javascript", "a.ts": "typescript",
		"a.sh": "bash", "a.R": "r", "A.java": "java",
	} {
		if got := languageOf(file); got != want {
			t.Errorf("languageOf(%q) = %q, want %q", file, got, want)
		}
	}
}

func TestArgumentsCode(t *testing.T) {
	t.Parallel()
	for language, want := range map[string]string{
		"":       `import sys` + "\n" + `sys.argv = ["a.py","it's","\"x\\n\""]`,
		"Python": `import sys` + "\n" + `sys.argv = ["a.py","it's","\"x\\n\""]`,
		"js":     `process.argv.splice(1, process.argv.length, "a.py","it's","\"x\\n\"")`,
		"bash":   `set -- 'it'\''s' '"x\n"'`,
	} {
		got, err := argumentsCode(language, "a.py", []string{"it's", `"x\n"`})
		if got != want || err != nil {
			t.Errorf("argumentsCode(%q) = %q, %v, want %q", language, got, err, want)
		}
	}
	if _, err := argumentsCode("r", "a.r", []string{"x"}); err == nil || !strings.Contains(err.Error(), "arguments for r are not supported") {
		t.Errorf("argumentsCode(r): %v, want an error that says what is not supported", err)
	}
}
