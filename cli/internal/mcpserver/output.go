package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/clip"
)

const (
	// maxText bounds the text of an answer. Clients refuse answers of more than 25,000 tokens, and
	// dense text has a token every one and a half bytes.
	maxText = 32 << 10
	// maxKept bounds the part of one output that is kept for clients that read the whole output.
	// Escaped as JSON, that part must fit into one line of the protocol, and clients read lines of up
	// to 16 MiB.
	maxKept = 4 << 20
	// maxKeptPicture bounds a kept picture, in bytes. It is sent as base64.
	maxKeptPicture = 8 << 20
	// maxOutputs bounds the sum of all kept outputs, in bytes. Beyond that, the oldest output is
	// dropped first.
	maxOutputs = 64 << 20
)

// outputPrefix begins the address of a kept output.
const outputPrefix = "e2bctl://output/"

// outputs keeps in memory the outputs that did not fit into answers.
type outputs struct {
	mu    sync.Mutex
	kept  map[string]keptOutput
	order []string
	bytes int
}

type keptOutput struct {
	mimeType string
	content  []byte
}

func newOutputs() *outputs { return &outputs{kept: map[string]keptOutput{}} }

// keep keeps an output and returns the link to it.
func (o *outputs) keep(name, mimeType string, content []byte) *sdk.ResourceLink {
	// In an address that matches outputTemplate, all but letters, digits and -._~ is escaped.
	uri := outputPrefix + rand.Text() + "/" + strings.ReplaceAll(url.QueryEscape(name), "+", "%20")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept[uri] = keptOutput{mimeType, content}
	o.order = append(o.order, uri)
	o.bytes += len(content)
	for o.bytes > maxOutputs {
		oldest := o.order[0]
		o.order = o.order[1:]
		o.bytes -= len(o.kept[oldest].content)
		delete(o.kept, oldest)
	}
	size := int64(len(content))
	return &sdk.ResourceLink{URI: uri, Name: name, MIMEType: mimeType, Size: &size}
}

func outputTemplate() *sdk.ResourceTemplate {
	return &sdk.ResourceTemplate{
		Name: "output", Title: "Whole outputs", URITemplate: outputPrefix + "{id}/{name}",
		Description: "What did not fit into the answer of a tool, by the link in that answer. The newest 64 MiB are kept.",
	}
}

// read returns a kept output to a client that requests it.
func (o *outputs) read(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	o.mu.Lock()
	kept, ok := o.kept[req.Params.URI]
	o.mu.Unlock()
	if !ok {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	content := &sdk.ResourceContents{URI: req.Params.URI, MIMEType: kept.mimeType}
	if strings.HasPrefix(kept.mimeType, "text/") {
		content.Text = string(kept.content)
	} else {
		content.Blob = kept.content
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{content}}, nil
}

// stream receives the output of a program as it arrives. It keeps the head and the tail for the
// answer, and the first maxKept bytes for clients that read the whole output. The memory that it
// uses is bounded. It is not safe for concurrent use.
type stream struct {
	ends  *clip.Output
	whole bytes.Buffer
	total int64
}

func newStream() *stream { return &stream{ends: clip.NewOutput(maxText)} }

// Write implements [io.Writer]. It never fails.
func (s *stream) Write(p []byte) (int, error) {
	s.total += int64(len(p))
	if room := maxKept - s.whole.Len(); room > 0 {
		s.whole.Write(p[:min(room, len(p))])
	}
	return s.ends.Write(p)
}

// into adds the output to the answer. If only a part of the output fits, into also keeps the whole
// output under name.
func (s *stream) into(c *call, name string) {
	text := plain(s.ends.Text())
	if s.total == 0 {
		return
	}
	c.answer.print(text)
	if s.total <= maxText {
		return
	}
	c.answer.attach(c.server.outputs.keep(name, "text/plain", []byte(plain(s.whole.String()))))
	kept := "all of it is at the link"
	if s.total > maxKept {
		kept = fmt.Sprintf("its first %d MiB are at the link", maxKept>>20)
	}
	c.answer.note("the output has %d bytes: %s. Write such output to a file, and read the part that you need", s.total, kept)
}
