package ci

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The runner of GitHub Actions obeys log lines that begin with "::"
// after optional white space. It also obeys older commands, which begin
// with "##[" anywhere in a line. Runners of Azure also obey "##vso[".

// Error returns the command that shows an error above the log and beside the step.
func Error(title, message string) string {
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	return "::error title=" + property.Replace(title) + "::" + escaped(message) + "\n"
}

// Group returns the command that folds the lines up to [EndGroup] under a title.
func Group(title string) string { return "::group::" + escaped(title) + "\n" }

// EndGroup is the command that ends a [Group].
const EndGroup = "::endgroup::\n"

// Mask returns the command that makes the runner hide a secret in the rest of the job's log.
func Mask(secret string) string { return "::add-mask::" + escaped(secret) + "\n" }

// escaped encodes a text for the last part of a command.
func escaped(text string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(text)
}

// Inert returns a writer that writes text to w in a form that no runner takes for a command. Each
// line must be written by one call of Write. Inert puts a backslash before "::". In the older form
// of commands it puts a space before the "[". JSON with these changes is still valid.
func Inert(w io.Writer) io.Writer { return inert{w} }

type inert struct{ w io.Writer }

func (i inert) Write(p []byte) (int, error) {
	if _, err := io.WriteString(i.w, inertText(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func inertText(text string) string {
	if !strings.Contains(text, "::") && !strings.Contains(text, "##") {
		return text
	}
	var out strings.Builder
	isStart := true // of a line: nothing but white space is before
	for rest := text; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		before := out.String()
		switch {
		case isStart && strings.HasPrefix(rest, "::"):
			out.WriteByte('\\')
		case r == '[' && (strings.HasSuffix(before, "##") || strings.HasSuffix(before, "##vso")):
			out.WriteByte(' ')
		}
		out.WriteString(rest[:size])
		rest = rest[size:]
		isStart = r == '\n' || r == '\r' || isStart && (unicode.IsSpace(r) || !unicode.IsPrint(r))
	}
	return out.String()
}
