package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/sandbox"
)

type pythonArguments struct {
	arguments
	Code    string `json:"code" jsonschema:"Python code; the value of its last expression is part of the answer"`
	Seconds int    `json:"timeout_seconds,omitempty" jsonschema:"interrupt the code after this time; the default is 300, the most 3600"`
}

const usualCodeTime = 5 * time.Minute

func pythonTool() tool {
	return newTool(&sdk.Tool{
		Name: "run_python", Annotations: hints("Run Python", false, true, true),
		Description: "Run Python in the sandbox, as in a notebook: variables, imports and functions stay for later calls. " +
			"Answers with what is printed, the value of the last expression, exceptions with their tracebacks, and figures of matplotlib as pictures. " +
			"Install packages with \"%pip install NAME\".",
	}, runPython)
}

func runPython(ctx context.Context, c *call, in pythonArguments) error {
	ctx, cancel, after, err := limit(ctx, in.Seconds, usualCodeTime)
	if err != nil {
		return err
	}
	defer cancel()
	printed := newStream()
	execution, err := c.execute(ctx, in.Code, printed)
	printed.into(c, "output.txt")
	if execution != nil {
		c.addResults(ctx, execution.Results)
		if execution.ResultsDropped > 0 {
			c.answer.note("%d more results were too many or too large", execution.ResultsDropped)
		}
	}
	raised, isRaised := errors.AsType[*sandbox.ExecutionError](err)
	switch {
	case isRaised:
		c.answer.print(shortened(plain(raised.Traceback)))
		return fmt.Errorf("the code raised %s", raised.Name)
	case err != nil && errors.Is(context.Cause(ctx), errTooLong):
		return fmt.Errorf("the code was interrupted after %v: variables have what it set until then. Give timeout_seconds, or start long work in the background with bash", after)
	}
	return err
}

// addResults adds the displayed results to the answer. Texts
// come first, because some clients show only the first content.
func (c *call) addResults(ctx context.Context, results []sandbox.Result) {
	for i, r := range results {
		if c.answer.isFull() || ctx.Err() != nil {
			c.answer.note("%d more results are left out: show fewer, or write them to files", len(results)-i)
			return
		}
		name := fmt.Sprintf("result-%d", i+1)
		switch {
		case r.PNG() != nil:
			c.attachPicture(name+".png", "image/png", r.PNG())
			continue
		case r.JPEG() != nil:
			c.attachPicture(name+".jpg", "image/jpeg", r.JPEG())
			continue
		}
		shown := newStream()
		_, _ = shown.Write([]byte(r.Text())) // it never fails
		shown.into(c, name+".txt")
		if svg := r.SVG(); svg != "" {
			c.attachFile(name+".svg", "image/svg+xml", []byte(svg))
		}
		if pdf := r.PDF(); pdf != nil {
			c.attachFile(name+".pdf", "application/pdf", pdf)
		}
		if html := r.HTML(); html != "" && r.Text() == "" {
			c.attachFile(name+".html", "text/html", []byte(html))
		}
	}
}
