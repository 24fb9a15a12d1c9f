package kernelconn

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// afterInterrupt bounds a wait after another client interrupted the code. It is the wait for a
// message that the kernel is shutting down.
const afterInterrupt = 500 * time.Millisecond

// fate is the information in a message about the end of the kernel's process.
type fate struct {
	// restarted means that a new process replaces the ended process. The new process does not have
	// the variables. ended means that no process will replace the ended process.
	restarted, ended bool
	// reason is a text for people; empty if the server gives no reason.
	reason string
	// byClient means that a client asked for the end.
	byClient bool
}

// deadly reports whether the variables of the kernel are lost. Then all executions of the kernel
// are lost, too, whichever client started them.
func (f fate) deadly() bool { return f.restarted || f.ended }

// fateOf returns the fate in a message. If a kernel's process ended by itself, the server reports
// "restarting" or "dead". If a client requested the end, the server reports nothing. It interrupts
// the code first, and this interrupt looks like any other KeyboardInterrupt. But after a client's
// request, the kernel sends a shutdown_reply to all clients.
func fateOf(m *jupyter.Message) fate {
	switch {
	case m.Header.MsgType == "status":
		status := m.Status()
		return fate{restarted: status.ExecutionState == "restarting", ended: status.ExecutionState == "dead", reason: status.Reason}
	case m.Header.MsgType == "shutdown_reply" && m.Channel == jupyter.IOPub:
		var reply struct {
			Restart bool `json:"restart"`
		}
		_ = json.Unmarshal(m.Content, &reply) // a malformed one counts as the end, too
		if reply.Restart {
			return fate{restarted: true, byClient: true, reason: "a client restarted its context"}
		}
		return fate{ended: true, byClient: true, reason: "a client removed its context, and only a default one comes back"}
	}
	return fate{}
}

// died returns [ErrDied], with the reason in why. If why is empty, the reason is unknown.
func died(why string) error {
	// Every message of the server begins with this.
	if why = strings.TrimPrefix(strings.TrimPrefix(why, "Context was restarted"), ": "); why == "" {
		return ErrDied
	}
	return fmt.Errorf("%w: %s", ErrDied, clip.Text(why, 256))
}

// withCause waits up to causeTimeout for the message in which a dead kernel gives the reason for
// its end. It returns an error with this reason, or else err.
func (e *execution) withCause(err error) error {
	if e.explained {
		return err
	}
	timeout := time.After(causeTimeout)
	for {
		select {
		case <-timeout:
			return err
		case m := <-e.messages:
			if m == nil || m.Parent.MsgID != e.id {
				return err
			}
			if m.Header.MsgType == "error" || m.Header.MsgType == "execute_reply" {
				var why jupyter.ErrorContent
				_ = json.Unmarshal(m.Content, &why) // a malformed one gives no reason
				return died(why.Value)
			}
		}
	}
}

// afterwards is called when an execution is over. If the execution was
// interrupted by another client, and the interrupt was the beginning of a restart
// of the context, afterwards returns [ErrDied].
func (k *Kernel) afterwards(ctx context.Context, e *execution) error {
	if !e.wasInterrupted() || e.interrupting.Load() {
		return nil
	}
	timeout := time.After(afterInterrupt)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timeout:
			return nil
		case m := <-e.messages:
			if m == nil {
				return nil
			}
			if fate := fateOf(m); fate.deadly() {
				return died(fate.reason)
			}
			k.turnDown(m)
		}
	}
}

// wasInterrupted reports whether the kernel's answer looks like the answer for interrupted code.
func (e *execution) wasInterrupted() bool {
	aborted := e.reply.Status == "aborted" || e.reply.Status == "abort"
	return e.reply.Name == "KeyboardInterrupt" || aborted && e.ran
}
