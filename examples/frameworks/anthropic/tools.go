// Package anthropic gives a sandbox to the tool runner of Anthropic's Go SDK.
package anthropic

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/toolrunner"

	"github.com/e2bctl/e2bctl/examples/frameworks/workspace"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/chart"
)

// The API refuses a request with a picture over 5 MiB of base64, and many pictures cost many
// tokens.
const (
	maxPictures     = 4
	maxPictureBytes = 3 << 20
)

type block = anthropic.BetaToolResultBlockParamContentUnion

// Run lets a model use the tools of a workspace until it has its answer. It returns the last
// message. Set the MaxIterations of params. If the sandbox is gone, Run ends after the model's next
// message: the runner by itself would only tell the model of each call that failed.
func Run(ctx context.Context, client *anthropic.Client, w *workspace.Workspace, params anthropic.BetaToolRunnerParams, opts ...option.RequestOption) (*anthropic.BetaMessage, error) {
	tools, err := Tools(w)
	if err != nil {
		return nil, err
	}
	runner := client.Beta.Messages.NewToolRunner(tools, params, opts...)
	for {
		// NextMessage runs the tools that the last message asks for, and sends their results.
		message, err := runner.NextMessage(ctx)
		switch {
		case w.Err() != nil:
			return runner.LastMessage(), fmt.Errorf("run the tools of the model: %w", w.Err())
		case err != nil:
			return runner.LastMessage(), err
		case message == nil:
			return runner.LastMessage(), nil
		}
	}
}

type codeInput struct {
	Code string `json:"code" jsonschema:"required,description=Python. The value of the last expression is shown."`
}

type commandInput struct {
	Command string `json:"command" jsonschema:"required,description=A command line for bash."`
}

type pathInput struct {
	Path string `json:"path" jsonschema:"required,description=A path. A relative one begins at the working directory."`
}

type writeInput struct {
	Path    string `json:"path" jsonschema:"required,description=A path. A relative one begins at the working directory."`
	Content string `json:"content" jsonschema:"required,description=The whole content of the file."`
}

// Tools returns tools that run code and commands in a workspace, and read, write and list its
// files. An exception and an exit status are results. An error is a result with is_error.
func Tools(w *workspace.Workspace) ([]anthropic.BetaTool, error) {
	var b builder
	add(&b, "run_code", "Run Python in the sandbox. Variables stay for the next call. Figures and images are returned as pictures.", func(ctx context.Context, in codeInput) ([]block, error) {
		execution, err := w.Code(ctx, in.Code)
		if execution == nil {
			return nil, err
		}
		blocks := shown(execution, w.MaxBytes)
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, blocks[0].OfText.Text)
		}
		return blocks, nil
	})
	add(&b, "run_command", "Run a command line in the sandbox, in the working directory "+w.Root+".", func(ctx context.Context, in commandInput) ([]block, error) {
		result, err := w.Command(ctx, in.Command, nil, nil)
		if result == nil {
			return nil, err
		}
		words := section("stdout", result.Stdout) + section("stderr", result.Stderr) + result.Status
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, words)
		}
		return text(words), nil
	})
	add(&b, "read_file", "Read a text file of the sandbox.", func(ctx context.Context, in pathInput) ([]block, error) {
		content, more, err := w.Read(ctx, in.Path)
		if err != nil {
			return nil, err
		}
		if more {
			content += fmt.Sprintf("\n[more than %d bytes: read the rest with a command, such as tail -c +%d]", w.MaxBytes, len(content)+1)
		}
		return text(content), nil
	})
	add(&b, "write_file", "Write a file of the sandbox, and create its directories.", func(ctx context.Context, in writeInput) ([]block, error) {
		if err := w.Write(ctx, in.Path, in.Content); err != nil {
			return nil, err
		}
		return text(fmt.Sprintf("wrote %d bytes to %s", len(in.Content), in.Path)), nil
	})
	add(&b, "list_files", "List a directory of the sandbox.", func(ctx context.Context, in pathInput) ([]block, error) {
		files, err := w.List(ctx, in.Path)
		if err != nil {
			return nil, err
		}
		var list strings.Builder
		for _, file := range files {
			fmt.Fprintf(&list, "%s %d %s\n", file.Type, file.Size, file.Name)
		}
		return text(cut(list.String(), w.MaxBytes)), nil
	})
	return b.tools, b.err
}

// builder collects tools until one of them cannot be made.
type builder struct {
	tools []anthropic.BetaTool
	err   error
}

func add[In any](b *builder, name, description string, run func(context.Context, In) ([]block, error)) {
	// The function of a tool of the SDK returns one block. Execute of blocks returns all of them.
	described, err := toolrunner.NewBetaToolFromJSONSchema(name, description, func(context.Context, In) (block, error) { return block{}, nil })
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("describe the tool %s: %w", name, err)
	}
	b.tools = append(b.tools, blocks[In]{BetaTool: described, run: run})
}

// blocks is a tool whose result may have several blocks, such as text and pictures.
type blocks[In any] struct {
	anthropic.BetaTool

	run func(context.Context, In) ([]block, error)
}

// Execute runs the tool.
func (t blocks[In]) Execute(ctx context.Context, input json.RawMessage) ([]block, error) {
	var in In
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, fmt.Errorf("the input of %s is not as its schema says: %w", t.Name(), err)
	}
	return t.run(ctx, in)
}

// shown returns the output, values, pictures and exception of code, in this order.
func shown(execution *sandbox.Execution, limit int) []block {
	var words strings.Builder
	words.WriteString(section("stdout", execution.Stdout))
	words.WriteString(section("stderr", execution.Stderr))
	var pictures []block
	var values strings.Builder
	left := 0
	for _, result := range execution.Results {
		if result.Text() != "" {
			fmt.Fprintln(&values, result.Text())
		}
		if figure := result.Data[chart.MIMEType]; result.Chart() != nil {
			fmt.Fprintf(&values, "chart: %s\n", figure)
		}
		picture, ok := picture(result)
		switch {
		case !ok:
		case len(pictures) == maxPictures:
			left++
		default:
			pictures = append(pictures, picture)
		}
	}
	words.WriteString(section("values", cut(values.String(), limit)))
	if left > 0 {
		fmt.Fprintf(&words, "[%d more pictures are not shown: show at most %d in one call]\n", left, maxPictures)
	}
	if execution.Error != nil {
		words.WriteString(section("exception", cut(execution.Error.Traceback, limit)))
	}
	return append(text(words.String()), pictures...)
}

// picture returns the picture of a result. The code chooses its bytes, and the API refuses the
// whole request for bytes that are no picture.
func picture(result sandbox.Result) (block, bool) {
	for _, data := range [][]byte{result.PNG(), result.JPEG()} {
		kind := http.DetectContentType(data)
		if len(data) > maxPictureBytes || kind != "image/png" && kind != "image/jpeg" {
			continue
		}
		return block{OfImage: &anthropic.BetaImageBlockParam{Source: anthropic.BetaImageBlockParamSourceUnion{
			OfBase64: &anthropic.BetaBase64ImageSourceParam{
				Data: base64.StdEncoding.EncodeToString(data), MediaType: anthropic.BetaBase64ImageSourceMediaType(kind),
			},
		}}}, true
	}
	return block{}, false
}

// text returns a block of text. The API refuses one that is empty.
func text(words string) []block {
	if strings.TrimSpace(words) == "" {
		words = "(no output)"
	}
	return []block{{OfText: &anthropic.BetaTextBlockParam{Text: words}}}
}

func section(name, content string) string {
	if content == "" {
		return ""
	}
	return name + ":\n" + strings.TrimSuffix(content, "\n") + "\n"
}

func cut(words string, limit int) string {
	words, more := workspace.Cut(words, limit)
	if more {
		words += fmt.Sprintf("\n[cut after %d bytes]", limit)
	}
	return words
}
