package template

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/parser"

	quoted "github.com/e2bctl/e2bctl/internal/shell"
)

func (c *conversion) run(n *parser.Node) error {
	if err := c.runFlags(n); err != nil {
		return err
	}
	command := commandOf(n)
	if !isList(n) && len(n.Heredocs) > 0 {
		command = withHeredocs(command, n.Heredocs)
	}
	c.made = c.made.Run(command, nil)
	return c.made.err
}

// runFlags checks the flags of RUN. It ignores flags for caches, because a missing cache only makes
// a command slower.
func (c *conversion) runFlags(n *parser.Node) error {
	for _, flag := range n.Flags {
		mount, isMount := strings.CutPrefix(flag, "--mount=")
		kind := "bind"
		for field := range strings.SplitSeq(mount, ",") {
			if value, ok := strings.CutPrefix(field, "type="); ok {
				kind = value
			}
		}
		switch {
		case flag == "--network=default" || flag == "--security=sandbox":
		case isMount && (kind == "cache" || kind == "tmpfs"):
			c.warn(linesOf(n), "--mount=type=%s of RUN is not supported, and left out", kind)
		case isMount && kind == "bind":
			return errors.New("--mount=type=bind of RUN is not supported: COPY what the command needs")
		case isMount:
			return fmt.Errorf("--mount=type=%s of RUN is not supported: a build has no secrets; do what needs one in a sandbox, and keep a snapshot of it", kind)
		default:
			flag, _, _ = strings.Cut(flag, "=")
			if !slices.Contains([]string{"--network", "--security", "--device"}, flag) {
				return fmt.Errorf("RUN has no flag %s", flag)
			}
			return fmt.Errorf("%s of RUN is not supported: commands run as in every sandbox; leave it out", flag)
		}
	}
	return nil
}

// withHeredocs returns the command of RUN with its here-documents. If the command consists only of
// a here-document, the here-document is the script to run.
func withHeredocs(command string, documents []parser.Heredoc) string {
	if alone, err := parser.ParseHeredoc(strings.TrimSpace(command)); err == nil && alone != nil && len(documents) == 1 {
		return script(documents[0])
	}
	for _, h := range documents {
		command += "\n" + h.Content + h.Name
	}
	return command
}

// script returns the shell command that runs a here-document. A text that begins with "#!" is
// written to a file in /tmp, which is run and then removed. Any other text is the command itself.
func script(h parser.Heredoc) string {
	text := content(h)
	if !strings.HasPrefix(text, "#!") {
		return text
	}
	mark, file := endMark(h.Name, text), quoted.Quote("/tmp/"+h.Name)
	return fmt.Sprintf("cat <<'%[1]s' >%[2]s\n%[3]s%[1]s\nchmod +x %[2]s && %[2]s\nE2B_EXIT=$?; rm -f %[2]s; exit $E2B_EXIT", mark, file, wholeLines(text))
}

// copyText adds a COPY of a here-document. If the target is a directory, the file has the
// here-document's name.
func (c *conversion) copyText(h parser.Heredoc, to placed) error {
	text := content(h)
	mark := endMark(h.Name, text)
	start := "'" + mark + "'"
	if h.Expand {
		text, start = expandable(text), mark
	}
	var b strings.Builder
	if strings.HasSuffix(to.target, "/") {
		fmt.Fprintf(&b, "E2B_HEREDOC_DEST=%s\n", quoted.Quote(to.target+h.Name))
	} else {
		fmt.Fprintf(&b, "E2B_HEREDOC_DEST=%s\nif [ -d \"$E2B_HEREDOC_DEST\" ]; then E2B_HEREDOC_DEST=\"$E2B_HEREDOC_DEST\"/%s; fi\n", quoted.Quote(to.target), quoted.Quote(h.Name))
	}
	fmt.Fprintf(&b, "mkdir -p \"$(dirname \"$E2B_HEREDOC_DEST\")\" && cat <<%s >\"$E2B_HEREDOC_DEST\"\n%s%s", start, wholeLines(text), mark)
	if to.owner != "" {
		fmt.Fprintf(&b, "\nchown %s \"$E2B_HEREDOC_DEST\"", quoted.Quote(to.owner))
	}
	if to.mode != "" {
		fmt.Fprintf(&b, "\nchmod %s \"$E2B_HEREDOC_DEST\"", to.mode)
	}
	c.made = c.made.Run(b.String(), &RunParams{User: "root"}) // COPY never runs as the current user
	return c.made.err
}

func content(h parser.Heredoc) string {
	if h.Chomp {
		return parser.ChompHeredocContent(h.Content)
	}
	return h.Content
}

// endMark returns a word that marks the end of the here-document called name for a shell. The word
// does not occur in text.
func endMark(name, text string) string {
	mark := "E2B_HEREDOC_" + strings.Map(func(r rune) rune {
		if isNameRune(r) {
			return r
		}
		return '_'
	}, name)
	for strings.Contains(text, mark) {
		mark += "_"
	}
	return mark
}

func isNameRune(r rune) bool {
	return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

func wholeLines(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

// expandable returns a here-document in a form that a shell expands as Docker does: variables are
// replaced, a backslash escapes the next character, and commands are not run.
func expandable(text string) string {
	var b strings.Builder
	literal := func(r rune) {
		if strings.ContainsRune("\\`$", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		switch r := runes[i]; {
		case r == '\\':
			if i++; i < len(runes) {
				literal(runes[i])
			}
		case r == '$' && i+1 < len(runes) && (runes[i+1] == '{' || isNameRune(runes[i+1])):
			b.WriteRune(r)
		default:
			literal(r)
		}
	}
	return b.String()
}
