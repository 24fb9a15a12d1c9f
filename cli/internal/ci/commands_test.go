package ci

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/e2bctl/e2bctl/internal/must"
)

// command is a command as the runner reads it.
type command struct{ name, title, message string }

// commandsIn returns the commands that the runner finds in its log.
func commandsIn(log string) (found []command) {
	unescape := strings.NewReplacer("%0D", "\r", "%0A", "\n", "%3A", ":", "%2C", ",", "%25", "%")
	old := regexp.MustCompile(`##(vso)?\[`)
	for line := range strings.FieldsFuncSeq(log, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if old.MatchString(line) {
			found = append(found, command{name: "old"})
		}
		line = strings.TrimLeftFunc(line, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
		head, message, ok := strings.Cut(strings.TrimPrefix(line, "::"), "::")
		if !ok || !strings.HasPrefix(line, "::") {
			continue
		}
		name, properties, _ := strings.Cut(head, " ")
		title := ""
		for property := range strings.SplitSeq(properties, ",") {
			if value, ok := strings.CutPrefix(property, "title="); ok {
				title = unescape.Replace(value)
			}
		}
		found = append(found, command{name, title, unescape.Replace(message)})
	}
	return found
}

// texts are texts of a sandbox that tries to command the runner.
func texts() []string {
	return []string{
		"plain", "100%", "a\n::set-env name=PATH::/tmp", "::add-mask::x", " \t::stop-commands::x", "\u00a0\u2003::error::x",
		"\x00::error::x", "a\r::error::x", "a\r\n::error::x", "##[add-mask]x", "###[group]x", "a ##[set-env name=PATH]x",
		"##vso[task.setvariable variable=PATH]x", "title,file=x::y", "%0A::error::x", "%250A", "\xff\n\xff::error::x", "std::string", "::1 is an address",
	}
}

func FuzzCommandsAreTheirOwn(f *testing.F) {
	for _, text := range texts() {
		f.Add("e2bctl", text)
		f.Add(text, "message")
	}
	f.Fuzz(func(t *testing.T, title, message string) {
		for log, want := range map[string]command{
			Error(title, message): {"error", title, message},
			Group(title):          {"group", "", title},
			Mask(message):         {"add-mask", "", message},
		} {
			var found []command
			for _, c := range commandsIn(log) {
				if c.name != "old" { // in a line that is a command, there is none of the old kind
					found = append(found, c)
				}
			}
			if len(found) != 1 || found[0] != want {
				t.Errorf("%q has the commands %q, want %q alone", log, found, want)
			}
		}
	})
}

func FuzzInert(f *testing.F) {
	for _, text := range texts() {
		f.Add(text, "x")
		f.Add("line", text)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		var log bytes.Buffer
		w := Inert(&log)
		for _, text := range []string{first + "\n", second + "\n"} {
			if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
				t.Fatalf("writes %d of %d bytes, %v", n, len(text), err)
			}
		}
		if found := commandsIn(log.String()); len(found) > 0 {
			t.Errorf("%q has the commands %q", &log, found)
		}
		added := strings.NewReplacer(`\`, "", " ", "")
		if text := first + "\n" + second + "\n"; added.Replace(log.String()) != added.Replace(text) {
			t.Errorf("%q becomes %q, want at most more backslashes and spaces", text, &log)
		}
	})
}

// TestInertLeavesTheRest checks that everyday text stays unchanged.
func TestInertLeavesTheRest(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	const text = "e2bctl: run: std::string\n## A title [1]\n#[x]\n: :\n"
	_, err := Inert(&log).Write([]byte(text))
	must.Do(t, err)
	if log.String() != text {
		t.Errorf("becomes %q, want %q", &log, text)
	}
}
