package mcpserver

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
)

// codeRun is a run in which code in a sandbox can call the tools of other servers.
type codeRun struct {
	run     *agent.Run
	out     switched
	servers []*proxied // the servers whose tools the code can call
}

// switched is a writer for the output of a run. It writes to the writer of the current step.
type switched struct{ to io.Writer }

func (s *switched) Write(p []byte) (int, error) { return s.to.Write(p) }

// execute runs code and writes its output to out.
func (c *call) execute(ctx context.Context, code string, out io.Writer) (*sandbox.Execution, error) {
	if len(c.server.config.Proxies) == 0 {
		return c.box.RunCode(ctx, code, &sandbox.RunCodeParams{Stdout: out, Stderr: out, MaxOutputBytes: -1})
	}
	if err := c.box.codeTurn.acquire(ctx); err != nil {
		return nil, err
	}
	defer c.box.codeTurn.release()
	step, err := c.step(ctx, code, out)
	if errors.Is(err, agent.ErrRunFinished) {
		c.box.endRun() // the next run of the sandbox starts where this one ended
		step, err = c.step(ctx, code, out)
	}
	if step == nil {
		return nil, err
	}
	if err == nil && step.Error != nil {
		err = step.Error
	}
	return &step.Execution, err
}

func (c *call) step(ctx context.Context, code string, out io.Writer) (*agent.Step, error) {
	if c.box.code != nil && slices.ContainsFunc(c.box.code.servers, (*proxied).hasEnded) {
		c.box.endRun() // the next one has the tools of a server that is started again
	}
	if c.box.code == nil {
		tools, servers, err := c.server.proxies.tools(ctx)
		if err != nil {
			return nil, err
		}
		begun := &codeRun{servers: servers}
		begun.run, err = agent.Begin(ctx, c.box.Sandbox, &agent.Params{
			Tools: tools, Audit: c.server.config.Audit, Stdout: &begun.out, Stderr: &begun.out,
		})
		if err != nil {
			return nil, err
		}
		c.box.mu.Lock()
		c.box.code = begun
		c.box.mu.Unlock()
	}
	c.box.code.out.to = out
	return c.box.code.run.Exec(ctx, code)
}

// endRun ends the current run of code. The caller must hold codeTurn.
func (b *held) endRun() {
	if b.code != nil {
		_ = b.code.run.Close() // its error is that of the audit, which every step reports
		b.mu.Lock()
		b.code = nil
		b.mu.Unlock()
	}
}
