package sandbox

import (
	"context"
	"fmt"
	"os"
	"slices"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/gen/process"
)

// ProcessInfo describes a process that any program started in a sandbox.
type ProcessInfo struct {
	PID int
	// Tag is the tag of the process; empty if it has none.
	Tag  string
	Cmd  string
	Args []string
	// Envs and Cwd are the environment variables and the working directory that were requested when
	// the process was started.
	Envs map[string]string
	Cwd  string
}

// ProcessSelector selects the process of a command or of a terminal: see [ByPID] and [ByTag].
type ProcessSelector struct {
	pid int
	tag string
}

// ByPID selects a process by its process id in the sandbox.
func ByPID(pid int) ProcessSelector { return ProcessSelector{pid: pid} }

// ByTag selects the process with a tag: see [CommandParams].Tag and [PTYParams].Tag. Only one
// process may have this tag.
func ByTag(tag string) ProcessSelector { return ProcessSelector{tag: tag} }

func (s ProcessSelector) String() string {
	if s.tag != "" {
		return fmt.Sprintf("the process with tag %q", clip.Text(s.tag, 64))
	}
	return fmt.Sprintf("process %d", s.pid)
}

// CommandListParams selects the processes to list.
type CommandListParams struct {
	// Tag selects the processes that were started with this tag; empty means all.
	Tag string
}

// List returns the running processes that were started in the sandbox as commands or terminals.
func (c *Commands) List(ctx context.Context, p *CommandListParams) ([]ProcessInfo, error) {
	ctx, end, err := c.sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	list, err := c.list(ctx)
	if err != nil {
		return nil, c.sb.failed(ctx, "list the processes", err)
	}
	if p != nil && p.Tag != "" {
		list = slices.DeleteFunc(list, func(info ProcessInfo) bool { return info.Tag != p.Tag })
	}
	return list, nil
}

// CommandKillParams sets how to kill a process.
type CommandKillParams struct {
	// Signal is syscall.SIGKILL, the default, or syscall.SIGTERM, which asks the process to
	// end. The service supports no other signals.
	Signal os.Signal
}

// Kill kills a process that was started in the sandbox as a command or a terminal. If no such
// process runs, the error matches both api.ErrNotFound and os.ErrProcessDone. If several processes
// have the selected tag, Kill returns an error and kills no process.
func (c *Commands) Kill(ctx context.Context, which ProcessSelector, p *CommandKillParams) error {
	wire := process.Signal_SIGNAL_SIGKILL
	if p != nil && p.Signal != nil {
		var err error
		if wire, err = wireSignal(p.Signal); err != nil {
			return fmt.Errorf("sandbox: kill %v in %s: %w", which, c.sb.ID(), err)
		}
	}
	return c.sb.act(ctx, "kill "+which.String(), func(ctx context.Context) error {
		selector, _, err := c.find(ctx, which)
		if err != nil {
			return err
		}
		return unary(ctx, "", c.sb.processes.SendSignal, &process.SendSignalRequest{Process: selector, Signal: wire})
	})
}

func (c *Commands) list(ctx context.Context) ([]ProcessInfo, error) {
	response, err := c.sb.processes.List(ctx, connect.NewRequest(&process.ListRequest{}))
	if err != nil {
		return nil, err
	}
	list := make([]ProcessInfo, 0, len(response.Msg.GetProcesses()))
	for _, p := range response.Msg.GetProcesses() {
		config := p.GetConfig()
		list = append(list, ProcessInfo{
			PID: int(p.GetPid()), Tag: p.GetTag(),
			Cmd: config.GetCmd(), Args: config.GetArgs(), Envs: config.GetEnvs(), Cwd: config.GetCwd(),
		})
	}
	return list, nil
}

// find returns the selector to send to envd, and the tag if it is known. It first looks up a tag in
// the list of processes, because the service's daemon selects any one of several processes with the
// same tag, and does not find some processes.
func (c *Commands) find(ctx context.Context, which ProcessSelector) (*process.ProcessSelector, string, error) {
	if which.tag == "" {
		pid, err := wirePID(which.pid)
		return byPID(pid), "", err
	}
	list, err := c.list(ctx)
	if err != nil {
		return nil, "", err
	}
	var found []int
	for _, p := range list {
		if p.Tag == which.tag {
			found = append(found, p.PID)
		}
	}
	switch len(found) {
	case 0: // a process that ended recently is not in the list
		return &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: which.tag}}, which.tag, nil
	case 1:
		pid, err := wirePID(found[0])
		return byPID(pid), which.tag, err
	}
	return nil, "", fmt.Errorf("%d processes have that tag, %d and %d among them: use ByPID", len(found), found[0], found[1])
}
