package code

import (
	"strings"

	"golang.org/x/term"
)

// searchKey is Ctrl-R.
const searchKey = 'R' - '@'

// search finds earlier cells that contain a text. The text is the line at the first press of
// Ctrl-R. Each further press shows an older cell. The press after the oldest cell shows the text
// again.
type search struct {
	text  string
	found string // the line that the last press of Ctrl-R produced
	from  int    // the index in the history at which the next press begins to search
}

// next returns the new line after a press of Ctrl-R. The argument line is the line before the
// press.
func (s *search) next(history term.History, line string) string {
	if s.from == 0 || line != s.found {
		*s = search{text: line}
	}
	for s.from < history.Len() {
		cell := history.At(s.from)
		s.from++
		if cell != line && strings.Contains(cell, s.text) {
			s.found = cell
			return cell
		}
	}
	text := s.text
	*s = search{}
	return text
}
