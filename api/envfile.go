package api

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/joho/godotenv"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

const maxEnvFile = 1 << 20

// readEnvFile reads variables from the settings file without changing the environment. The file may
// belong to another program, so lines that cannot be parsed are ignored. Such a line is an error
// only if it sets one of the variables in names. The errors do not contain the parser's messages,
// because these quote the file, which may contain secrets.
func (s *settings) readEnvFile(names []string) (map[string]string, error) {
	name := s.envFileName()
	if name == "" {
		return nil, nil
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) && !s.envFileNamed {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("api: read settings: %w", err)
	}
	defer f.Close()
	// A directory with that name is a Python virtual environment.
	if info, err := f.Stat(); err == nil && info.IsDir() && !s.envFileNamed {
		return nil, nil
	}
	// Editors and shells on Windows begin a file with a byte-order mark, and some write UTF-16.
	decoded := transform.NewReader(f, unicode.BOMOverride(encoding.Nop.NewDecoder()))
	data, err := io.ReadAll(io.LimitReader(decoded, maxEnvFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("api: read settings: %w", err)
	case len(data) > maxEnvFile:
		return nil, fmt.Errorf("api: read settings: %s is larger than 1 MiB; name another file (WithEnvFile)", name)
	}
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	values, err := godotenv.Unmarshal(text)
	if err == nil {
		return values, nil
	}
	var good strings.Builder
	for _, st := range statements(text) {
		switch _, err := godotenv.Unmarshal(st.text); {
		case err == nil:
			good.WriteString(st.text)
		case slices.Contains(names, st.name):
			return nil, fmt.Errorf("api: read settings: %s:%d: %s is not of the form %[3]s=value; correct this line, or name another file (WithEnvFile)", name, st.line, st.name)
		}
	}
	if values, err = godotenv.Unmarshal(good.String()); err != nil {
		return nil, fmt.Errorf("api: read settings: %s has lines that are not of the form NAME=value; correct them, or name another file (WithEnvFile)", name)
	}
	return values, nil
}

// statement sets one variable. It has several lines if a quoted value contains line breaks.
type statement struct {
	name string
	line int // the number of the statement's first line, from 1
	text string
}

func statements(text string) []statement {
	var all []statement
	for line := 1; text != ""; {
		n := len(text)
		if i := strings.IndexByte(text, '\n'); i >= 0 {
			n = i + 1
		}
		name, value := text[:n], ""
		if i := strings.IndexAny(name, "=:"); i >= 0 {
			name, value = name[:i], text[i+1:]
			value = strings.TrimLeft(value, " \t")
			n = max(n, len(text)-len(value)+quotedLines(value))
		}
		if fields := strings.Fields(name); len(fields) > 1 && fields[0] == "export" {
			name = fields[1]
		}
		all = append(all, statement{strings.TrimSpace(name), line, text[:n]})
		line += strings.Count(text[:n], "\n")
		text = text[n:]
	}
	return all
}

// quotedLines returns the number of bytes from the opening quote of value to the end of the line with
// the closing quote, including its line break if there is one. It returns 0 if value is not quoted or
// the closing quote is missing.
func quotedLines(value string) int {
	if value == "" || value[0] != '\'' && value[0] != '"' {
		return 0
	}
	for i := 1; i < len(value); i++ {
		if value[i] != value[0] || value[i-1] == '\\' {
			continue
		}
		if end := strings.IndexByte(value[i:], '\n'); end >= 0 {
			return i + end + 1
		}
		return len(value)
	}
	return 0
}
