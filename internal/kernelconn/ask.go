package kernelconn

import (
	"context"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/boundjson"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Question is a request that runs no code in the kernel, such as complete, inspect and
// is_complete of Jupyter's protocol.
type Question struct {
	// Context and Language have the same meaning as in [Call].
	Context, Language string
	// Kind is the type of the request, without the suffix _request.
	Kind string
	// Content is encoded as JSON.
	Content any
}

// Ask waits for its turn, sends a question to a kernel, and decodes the content of the answer into
// reply. When ctx ends, Ask returns without interrupting the kernel. The kernel then loses nothing,
// and answers later requests when it has finished this request. If the context has lost its
// variables, Ask does not report the loss. The next [Kernels.Execute] reports it.
func (ks *Kernels) Ask(ctx context.Context, q Question, reply any) error {
	var a answer
	err := ks.overOpen(ctx, q.Context, q.Language, func(k *Kernel) (err error) {
		if err := k.takeTurn(ctx, nil); err != nil {
			return err
		}
		a, err = k.runInTurn(ctx, request{kind: q.Kind, content: q.Content}, Handler{}, nil)
		return err
	})
	if err != nil {
		return err
	}
	if a.reply.Status == "error" {
		return fmt.Errorf("the kernel cannot answer %s: %s: %s", q.Kind, clip.Text(a.reply.Name, 64), clip.Text(a.reply.Value, 256))
	}
	if err := boundjson.Unmarshal(a.content, reply, jupyter.MaxMembers, maxReplyDepth); err != nil {
		return fmt.Errorf("the kernel's answer to %s is malformed: %w", q.Kind, err)
	}
	return nil
}
