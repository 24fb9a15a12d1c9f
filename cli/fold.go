package cli

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmd/version"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// helper prints the help of commands, in the width of the terminal.
type helper struct {
	io  *cmdutil.IOStreams
	err error // the error of writing help, which the library cannot return
}

// versionFlag is a flag of the root command. The root command has no run function, so its help
// prints the version if this flag is set. versionFlag replaces the version flag of the library,
// because only a template could change the text of that flag. text/template calls methods by name,
// so the linker would keep every method of the program.
const versionFlag = "version"

// serve makes h print the help of root and of all commands below it.
func (h *helper) serve(root *cobra.Command) {
	describe := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if isVersion, _ := root.Flags().GetBool(versionFlag); isVersion && cmd == root {
			_, h.err = io.WriteString(h.io.Out, "e2bctl "+version.Line()+"\n")
			return
		}
		text := cmd.Long
		if !cmd.IsAdditionalHelpTopicCommand() {
			var all strings.Builder
			cmd.SetOut(&all)
			describe(cmd, args)
			text = all.String()
		}
		_, h.err = io.WriteString(h.io.Out, fold(text, h.io.OutWidth))
	})
}

// A description is beside its term if at least minDescription columns are left there. Otherwise it
// is below the term, indented by belowTerm columns.
const (
	minDescription = 24
	belowTerm      = 8
)

// fold breaks the lines of a help text that are longer than width columns; 0 means no bound. It
// reflows paragraphs, and keeps descriptions beside their terms. Other indented lines stay as they
// are, because they are commands to copy.
func fold(text string, width int) string {
	if width <= 0 {
		return text
	}
	var out strings.Builder
	inExamples := false
	for lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n"); len(lines) > 0; {
		first := lines[0]
		inExamples = first == "Examples:" || inExamples && first != ""
		indent := len(first) - len(strings.TrimLeft(first, " "))
		term := termWidth(first, indent)
		belongs := func(next string) bool { return indent == 0 && next != "" && next[0] != ' ' }
		if term > 0 {
			belongs = func(next string) bool { return strings.HasPrefix(next, strings.Repeat(" ", term)) }
		}
		count, isLong := 1, utf8.RuneCountInString(first) > width
		for count < len(lines) && first != "" && !inExamples && belongs(lines[count]) {
			isLong = isLong || utf8.RuneCountInString(lines[count]) > width
			count++
		}
		fits := !isLong && (term == 0 || width-term >= minDescription) // a flag looks like those beside it
		switch {
		case fits || inExamples || indent > 0 && term == 0:
			out.WriteString(strings.Join(lines[:count], "\n") + "\n")
		case term == 0:
			fill(&out, "", strings.Fields(strings.Join(lines[:count], " ")), 0, width)
		default:
			words := strings.Fields(first[term:] + " " + strings.Join(lines[1:count], " "))
			if name := first[:term]; width-term >= minDescription {
				fill(&out, name, words, term, width)
			} else {
				out.WriteString(strings.TrimRight(name, " ") + "\n")
				fill(&out, strings.Repeat(" ", belowTerm), words, belowTerm, width)
			}
		}
		lines = lines[count:]
	}
	return out.String()
}

// termWidth returns the column in which the description of a term, such as a flag, begins. It
// returns 0 for a line without a term.
func termWidth(line string, indent int) int {
	gap := strings.Index(line[indent:], "  ")
	if indent == 0 || gap < 0 {
		return 0
	}
	described := strings.TrimLeft(line[indent+gap:], " ")
	return len(line) - len(described)
}

// fill writes words in lines of width columns. The first line begins with begin, and the
// other lines are indented by indent.
func fill(out *strings.Builder, begin string, words []string, indent, width int) {
	line, used := begin, utf8.RuneCountInString(begin)
	isEmpty := true
	for _, word := range words {
		length := utf8.RuneCountInString(word)
		if !isEmpty && used+1+length > width {
			out.WriteString(line + "\n")
			line, used, isEmpty = strings.Repeat(" ", indent), indent, true
		}
		if !isEmpty {
			line, used = line+" ", used+1
		}
		line, used, isEmpty = line+word, used+length, false
	}
	out.WriteString(line + "\n")
}
