package mcpserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/clip"
)

const (
	maxLines    = 2000    // the largest number of lines in an answer of read_file
	maxLine     = 2000    // the largest number of bytes shown of one line
	maxEditable = 4 << 20 // the size, in bytes, of the largest file that edit_file changes
)

type readArguments struct {
	arguments
	Path   string `json:"path" jsonschema:"a path in the sandbox, relative to the home of its user"`
	Offset int    `json:"offset,omitempty" jsonschema:"the first line to read, from 1"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many lines to read; at most 2000, which is the default"`
}

func readTool() tool {
	return newTool(&sdk.Tool{
		Name: "read_file", Annotations: hints("Read a file", true, false, false),
		Description: "Read a text file of the sandbox, or a part of its lines; PNG and JPEG files are shown as pictures.",
	}, readFile)
}

func readFile(ctx context.Context, c *call, in readArguments) error {
	if in.Offset < 0 || in.Limit < 0 || in.Limit > maxLines {
		return fmt.Errorf("offset is %d and limit %d: want lines from 1, and at most %d of them", in.Offset, in.Limit, maxLines)
	}
	file, err := c.box.Files.Open(ctx, in.Path, nil)
	if err != nil {
		return err
	}
	defer file.Close()
	r := bufio.NewReaderSize(file, 64<<10)
	start, err := r.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	kind := http.DetectContentType(start)
	if kind == "image/png" || kind == "image/jpeg" {
		content, err := io.ReadAll(io.LimitReader(r, maxKeptPicture+1))
		if err != nil {
			return err
		}
		if len(content) > maxKeptPicture {
			return fmt.Errorf("%s is a picture of more than %d MiB: make it smaller in the sandbox", plain(in.Path), maxKeptPicture>>20)
		}
		c.attachPicture(path.Base(plain(in.Path)), kind, content)
		return nil
	}
	if !isText(start) {
		return fmt.Errorf("%s is not text (it looks like %s): look at it with run_python or bash", plain(in.Path), kind)
	}
	return c.readLines(r, in)
}

// isText reports whether the beginning of a file is text.
func isText(start []byte) bool {
	return !strings.ContainsRune(string(start), 0) && utf8.Valid(clip.WithoutCutRune(start))
}

func (c *call) readLines(r *bufio.Reader, in readArguments) error {
	first, most := max(in.Offset, 1), in.Limit
	if most == 0 {
		most = maxLines
	}
	var text strings.Builder
	line, shortened := 0, 0
	for {
		content, cut, err := readLine(r)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err != nil && content == "" {
			break
		}
		line++
		if line < first {
			continue
		}
		if line-first >= most || text.Len()+len(content) > maxText {
			c.answer.print(plain(text.String()))
			c.answer.note("lines %d to %d; there are more: go on with offset %d", first, line-1, line)
			return nil
		}
		if cut {
			shortened++
		}
		text.WriteString(content)
	}
	if line < first && first > 1 {
		return fmt.Errorf("%s has %d lines: there is no line %d", plain(in.Path), line, first)
	}
	c.answer.print(plain(text.String()))
	if shortened > 0 {
		c.answer.note("%d lines are longer than %d bytes: the rest of each is left out", shortened, maxLine)
	}
	if line == 0 {
		c.answer.note("the file is empty")
	}
	return nil
}

// readLine returns the next line with its newline. If the line is longer than maxLine, it returns
// only the beginning, and cut is true. The memory used does not depend on the length of the line.
func readLine(r *bufio.Reader) (line string, cut bool, err error) {
	var kept []byte
	for {
		part, err := r.ReadSlice('\n')
		if room := maxLine - len(kept); len(part) > room {
			kept, cut = append(kept, part[:room]...), true
		} else {
			kept = append(kept, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if cut {
			kept = append(clip.WithoutCutRune(kept), "…\n"...)
		}
		return string(kept), cut, err
	}
}

type writeArguments struct {
	arguments
	Path    string `json:"path" jsonschema:"a path in the sandbox, relative to the home of its user"`
	Content string `json:"content" jsonschema:"the whole new content of the file"`
}

func writeTool() tool {
	return newTool(&sdk.Tool{
		Name: "write_file", Annotations: hints("Write a file", false, true, false),
		Description: "Write a text file of the sandbox. A file that exists is replaced; directories are made.",
	}, writeFile)
}

func writeFile(ctx context.Context, c *call, in writeArguments) error {
	if err := c.box.Files.WriteText(ctx, in.Path, in.Content, nil); err != nil {
		return err
	}
	c.answer.note("wrote %d bytes to %s", len(in.Content), plain(in.Path))
	return nil
}

type editArguments struct {
	arguments
	Path string `json:"path" jsonschema:"a path in the sandbox, relative to the home of its user"`
	Old  string `json:"old_str" jsonschema:"the text to replace, exactly as it is in the file"`
	New  string `json:"new_str" jsonschema:"the text in its place"`
	All  bool   `json:"replace_all,omitempty" jsonschema:"replace every occurrence; otherwise there must be exactly one"`
}

func editTool() tool {
	return newTool(&sdk.Tool{
		Name: "edit_file", Annotations: hints("Edit a file", false, true, false),
		Description: "Replace a text in a file of the sandbox. The old text must occur exactly once, or replace_all be set.",
	}, editFile)
}

func editFile(ctx context.Context, c *call, in editArguments) error {
	if in.Old == "" || in.Old == in.New {
		return errors.New("old_str is empty or equal to new_str: there is nothing to replace")
	}
	file, err := c.box.Files.Open(ctx, in.Path, nil)
	if err != nil {
		return err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxEditable+1))
	if err != nil {
		return err
	}
	text, found := string(content), strings.Count(string(content), in.Old)
	switch {
	case len(content) > maxEditable:
		return fmt.Errorf("%s has more than %d MiB: change it with run_python or bash", plain(in.Path), maxEditable>>20)
	case found == 0:
		return fmt.Errorf("old_str does not occur in %s, so nothing was changed: read the file again, and copy the text exactly, with its spaces", plain(in.Path))
	case found > 1 && !in.All:
		return fmt.Errorf("old_str occurs %d times in %s, so nothing was changed: add lines around it that make it unique, or set replace_all", found, plain(in.Path))
	}
	if len(content)+found*(len(in.New)-len(in.Old)) > maxEditable {
		return fmt.Errorf("%s would have more than %d MiB, so nothing was changed: change it with run_python or bash", plain(in.Path), maxEditable>>20)
	}
	if err := c.box.Files.WriteText(ctx, in.Path, strings.ReplaceAll(text, in.Old, in.New), nil); err != nil {
		return err
	}
	c.answer.note("replaced %d occurrence%s in %s", found, map[bool]string{true: "s"}[found > 1], plain(in.Path))
	return nil
}

// shortened returns text. If text is longer than an answer may be, shortened leaves out the middle.
func shortened(text string) string {
	out := clip.NewOutput(maxText)
	_, _ = out.Write([]byte(text)) // it never fails
	return out.Text()
}
