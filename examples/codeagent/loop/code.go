package loop

import "strings"

// codeOf returns the Python in an answer: its fenced blocks, joined in order.
// Blocks that name another language are not code, and a block without an end means
// that the answer was cut off.
func codeOf(answer string) (code string, ok bool) {
	var all, block []string
	fence, python := "", false
	for line := range strings.Lines(answer) {
		line = strings.TrimRight(line, "\r\n")
		mark, language := fenceOf(line)
		switch {
		case fence == "" && mark != "":
			fence, python, block = mark, isPython(language), nil
		case fence != "" && mark == fence && language == "":
			if python {
				all = append(all, block...)
			}
			fence = ""
		case fence != "":
			block = append(block, line)
		}
	}
	code = strings.Join(all, "\n")
	return code, fence == "" && strings.TrimSpace(code) != ""
}

// fenceOf parses a line that starts or ends a block; for other lines mark is
// empty.
func fenceOf(line string) (mark, language string) {
	line = strings.TrimSpace(line)
	language = strings.TrimLeft(line, "`")
	if mark = line[:len(line)-len(language)]; len(mark) < 3 || strings.Contains(language, "`") {
		return "", ""
	}
	return mark, strings.TrimSpace(language)
}

func isPython(language string) bool {
	switch strings.ToLower(language) {
	case "", "py", "python", "python3":
		return true
	}
	return false
}
