// Package eino gives a sandbox to the agents of Eino, as the backend of its middleware for files
// and a shell.
package eino

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/cloudwego/eino/adk/filesystem"
	"github.com/cloudwego/eino/schema"

	"github.com/e2bctl/e2bctl/examples/frameworks/workspace"
)

// maxEdited is the size of the largest file that Edit changes.
const maxEdited = 1 << 20

// Backend is a workspace as the backend of Eino's tools. All paths are those of the sandbox, so
// the tools for files and the shell agree. An empty path is the directory of the workspace.
type Backend struct {
	Workspace *workspace.Workspace

	// changing is held while a file is read and then written: Eino runs the tool calls of one turn
	// at the same time.
	changing sync.Mutex
}

var (
	_ filesystem.ShellBackend          = (*Backend)(nil)
	_ filesystem.StreamingShellBackend = (*Backend)(nil)
)

// LsInfo lists a directory.
func (b *Backend) LsInfo(ctx context.Context, req *filesystem.LsInfoRequest) ([]filesystem.FileInfo, error) {
	files, err := b.Workspace.List(ctx, req.Path)
	infos := make([]filesystem.FileInfo, len(files))
	for i, file := range files {
		infos[i].Path = file.Path
	}
	return infos, err
}

// Read returns lines of a file, each with its number, up to the bound of the workspace.
func (b *Backend) Read(ctx context.Context, req *filesystem.ReadRequest) (string, error) {
	limit := req.Limit
	if limit <= 0 {
		limit = 200
	}
	var text strings.Builder
	err := b.Workspace.Stream(ctx, req.FilePath, func(content io.Reader) error {
		lines := bufio.NewReader(content)
		for number, begins := 1, true; number <= max(req.Offset, 0)+limit; {
			part, continues, err := lines.ReadLine()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if number > req.Offset {
				if begins {
					fmt.Fprintf(&text, "%6d\t", number)
				}
				text.Write(part)
			}
			if begins = !continues; begins {
				if number > req.Offset {
					text.WriteByte('\n')
				}
				number++
			}
			if text.Len() > b.Workspace.MaxBytes {
				kept, _ := workspace.Cut(text.String(), b.Workspace.MaxBytes)
				text.Reset()
				fmt.Fprintf(&text, "%s\n[cut in line %d: read on with an offset]", kept, number)
				return nil
			}
		}
		return nil
	})
	return strings.ToValidUTF8(strings.TrimSuffix(text.String(), "\n"), "\uFFFD"), err
}

// GrepRaw finds lines that contain a text.
func (b *Backend) GrepRaw(ctx context.Context, req *filesystem.GrepRequest) ([]filesystem.GrepMatch, error) {
	found, err := b.Workspace.Grep(ctx, req.Path, req.Pattern, req.Glob)
	matches := make([]filesystem.GrepMatch, len(found))
	for i, match := range found {
		text, _ := workspace.Cut(match.Text, 500)
		matches[i] = filesystem.GrepMatch{Path: match.Path, Line: match.Line, Content: text}
	}
	return matches, err
}

// GlobInfo finds files by a pattern.
func (b *Backend) GlobInfo(ctx context.Context, req *filesystem.GlobInfoRequest) ([]filesystem.FileInfo, error) {
	found, err := b.Workspace.Find(ctx, req.Path, req.Pattern)
	infos := make([]filesystem.FileInfo, len(found))
	for i, name := range found {
		infos[i].Path = name
	}
	return infos, err
}

// Write creates a file. As Eino's contract says, a file that is there is an error.
func (b *Backend) Write(ctx context.Context, req *filesystem.WriteRequest) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	there, err := b.Workspace.Exists(ctx, req.FilePath)
	if err != nil {
		return err
	}
	if there {
		return fmt.Errorf("%s is there already: edit it, or choose another name", req.FilePath)
	}
	return b.Workspace.Write(ctx, req.FilePath, req.Content)
}

// Edit replaces text in a file.
func (b *Backend) Edit(ctx context.Context, req *filesystem.EditRequest) error {
	if req.OldString == "" {
		return errors.New("the old text is empty: give the text to replace")
	}
	b.changing.Lock()
	defer b.changing.Unlock()
	var content string
	err := b.Workspace.Stream(ctx, req.FilePath, func(r io.Reader) error {
		data, err := io.ReadAll(io.LimitReader(r, maxEdited+1))
		content = string(data)
		if err == nil && len(data) > maxEdited {
			err = fmt.Errorf("the file has more than %d bytes: change it with a command", maxEdited)
		}
		return err
	})
	if err != nil {
		return err
	}
	switch n := strings.Count(content, req.OldString); {
	case n == 0:
		return fmt.Errorf("the old text is not in %s: read the file, and give the text exactly", req.FilePath)
	case n > 1 && !req.ReplaceAll:
		return fmt.Errorf("the old text is %d times in %s: give more of the text around it, or replace all", n, req.FilePath)
	}
	return b.Workspace.Write(ctx, req.FilePath, strings.ReplaceAll(content, req.OldString, req.NewString))
}

// Execute runs a command line. An exit status is a result.
func (b *Backend) Execute(ctx context.Context, req *filesystem.ExecuteRequest) (*filesystem.ExecuteResponse, error) {
	result, err := b.Workspace.Command(ctx, req.Command, nil, nil)
	if err != nil {
		return nil, err
	}
	return &filesystem.ExecuteResponse{Output: result.Stdout + result.Stderr, ExitCode: &result.ExitCode, Truncated: result.Truncated()}, nil
}

// ExecuteStreaming runs a command line, and streams the beginning of its output as it arrives. Of
// longer output, the end follows when the command has ended. Close the stream to end the command.
func (b *Backend) ExecuteStreaming(ctx context.Context, req *filesystem.ExecuteRequest) (*schema.StreamReader[*filesystem.ExecuteResponse], error) {
	reader, writer := schema.Pipe[*filesystem.ExecuteResponse](10)
	go func() {
		defer writer.Close()
		out := &output{to: writer, left: b.Workspace.MaxBytes, tail: b.Workspace.MaxBytes}
		result, err := b.Workspace.Command(ctx, req.Command, out, out)
		out.finish()
		if err == nil {
			writer.Send(&filesystem.ExecuteResponse{ExitCode: &result.ExitCode}, nil)
		} else if text, ok := told(ctx, b.Workspace, err); ok {
			writer.Send(&filesystem.ExecuteResponse{Output: text}, nil)
		} else {
			writer.Send(nil, err)
		}
	}()
	return reader, nil
}
