//go:build linux

package zmq

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// exchanges are the requests to the kernel that serve one [Request]. If the [Request] has its own
// variables, several requests serve it.
type exchanges struct {
	id     uint64
	hidden bool // the current exchange is internal, so no client sees it
	// unannounced means that no execute_input will arrive.
	unannounced bool
	header      jupyter.Header
	queue       []func() (hidden bool, header jupyter.Header, err error) // each function sends the next request
	replied     bool
	idle        bool
	mark        string          // marks the end of the output; "" once it has arrived
	answer      json.RawMessage // answer to the exchange that is not hidden
	overtime    *time.Timer
	recounted   bool // the wait for missing messages was extended, which is done only once
}

// hear handles a message from the kernel.
func (l *Link) hear(m *jupyter.Message) error {
	l.order.Lock()
	defer l.order.Unlock()
	if !l.ready {
		return l.hearFirst(m)
	}
	l.count.note(m.Header.MsgID)
	switch m.Channel {
	case jupyter.Shell:
		if l.talk != nil && m.Parent.MsgID == l.talk.header.MsgID {
			l.talk.replied = true
			if !l.talk.hidden {
				l.talk.answer = m.Content
			} else if failed(m.Content) {
				l.talk.mark = "" // the mark will not arrive
			}
			l.talk.overtime.Reset(l.patience)
			return l.proceed()
		}
	case jupyter.Stdin:
		if m.Header.MsgType == "input_request" {
			l.mu.Lock()
			l.asking = m.Header
			l.mu.Unlock()
			return l.take(&link.Message{Type: m.Header.MsgType, Content: m.Content, Seq: 1})
		}
	case jupyter.IOPub:
		return l.hearOutput(m)
	}
	return nil
}

// hearFirst handles a message of a kernel that is not ready yet. The kernel is ready when an answer
// on shell and a message on iopub have arrived. After both have arrived, no message is lost.
func (l *Link) hearFirst(m *jupyter.Message) error {
	l.heard = l.heard || m.Channel == jupyter.IOPub
	if m.Header.MsgType == "kernel_info_reply" {
		var names struct {
			Implementation string `json:"implementation"`
			Version        string `json:"implementation_version"`
		}
		_ = json.Unmarshal(m.Content, &names) // only used for the log
		l.info = &link.Info{Engine: names.Implementation, Version: names.Version, KernelInfo: m.Content}
	}
	if !l.heard || l.info == nil {
		return nil
	}
	l.ready = true
	return l.take(&link.Message{Type: "ready", Content: jupyter.Encode(l.info)})
}

func (l *Link) hearOutput(m *jupyter.Message) error {
	ours := l.talk != nil && m.Parent.MsgID == l.talk.header.MsgID
	switch {
	case m.Header.MsgType == "status":
		if !ours {
			return nil
		}
		var status jupyter.StatusContent
		_ = json.Unmarshal(m.Content, &status) // a status that cannot be parsed is ignored
		switch status.ExecutionState {
		case jupyter.StateIdle:
			l.talk.idle = true
			l.talk.overtime.Reset(l.patience) // some kernels do not reply after an interrupt
			return l.proceed()
		case jupyter.StateBusy:
			if l.talk.unannounced {
				return l.take(&link.Message{Type: "armed"})
			}
		}
		return nil
	case m.Header.MsgType == markType && l.talk != nil && l.talk.mark != "":
		if isMark(m.Content, l.talk.mark) {
			l.talk.mark = ""
			return l.proceed()
		}
		return nil
	case !passed[m.Header.MsgType]:
		return nil
	case ours && l.talk.hidden && (m.Header.MsgType == "execute_input" || m.Header.MsgType == "error"):
		return nil // a late message that belongs to an earlier request
	}
	return l.take(&link.Message{Type: m.Header.MsgType, Content: m.Content, Buffers: m.Buffers})
}

// passed lists the iopub messages that are passed on to clients.
var passed = map[string]bool{
	"execute_input": true, "stream": true, "display_data": true, "update_display_data": true, "clear_output": true,
	"execute_result": true, "error": true, "comm_open": true, "comm_msg": true, "comm_close": true,
}

// proceed starts the next exchange when the current one has ended. The caller holds l.order.
func (l *Link) proceed() error {
	t := l.talk
	isRequest := strings.HasSuffix(t.header.MsgType, "_request")
	if !t.idle || isRequest && !t.replied || t.mark != "" {
		return nil
	}
	t.overtime.Stop()
	lost := l.count.lost()
	if lost > 0 && !t.recounted && t.header.MsgType == "kernel_info_request" {
		t.recounted = true // the message may still be in transit on another channel
		t.queue = append(t.queue, l.barrier)
	}
	if len(t.queue) > 0 {
		return l.ask(t)
	}
	l.talk = nil
	if lost > 0 {
		notice := jupyter.StreamContent{Name: "stderr", Text: fmt.Sprintf(
			"[%d messages of the kernel are missing: it drops what is not read in time]\n", lost)}
		if err := l.take(&link.Message{Type: "stream", Content: jupyter.Encode(notice)}); err != nil {
			return err
		}
	}
	if t.answer == nil {
		t.answer = json.RawMessage(`{"status":"ok"}`)
	}
	return l.take(&link.Message{Type: "reply", ID: t.id, Content: t.answer})
}

// ask starts the next exchange. The caller holds l.order.
func (l *Link) ask(t *exchanges) (err error) {
	t.replied, t.idle = false, false
	next := t.queue[0]
	t.queue = t.queue[1:]
	t.hidden, t.header, err = next()
	if t.header.MsgType == "execute_request" && !t.hidden {
		t.overtime.Stop()
	} else {
		t.overtime.Reset(l.patience)
	}
	return err
}

// late is called when the kernel has not completed the current request of t in time.
func (l *Link) late(t *exchanges) {
	l.order.Lock()
	defer l.order.Unlock()
	if l.talk != t {
		return
	}
	if !t.replied && !t.hidden {
		answer := errorReply("TimeoutError", fmt.Sprintf("the kernel %s did not answer %s within %v", l.spec.Name, t.header.MsgType, l.patience))
		_ = l.refuse(t, answer) // fails only if the process has ended
		return
	}
	t.replied, t.idle, t.mark = true, true, ""
	_ = l.proceed() // fails only if the process has ended
}

func errorReply(name, value string) json.RawMessage {
	return jupyter.Encode(map[string]any{"status": "error", "ename": name, "evalue": value, "traceback": []string{}, "execution_count": 0})
}

// answered lists the shell requests that kernels answer.
var answered = map[string]bool{
	"execute_request": true, "complete_request": true, "inspect_request": true, "is_complete_request": true,
	"history_request": true, "comm_info_request": true, "comm_open": true, "comm_msg": true, "comm_close": true,
}

// Send sends a command to the kernel.
func (l *Link) Send(c *link.Command) error {
	switch c.Type {
	case "input_reply":
		l.mu.Lock()
		parent := l.asking
		l.mu.Unlock()
		value := c.Value
		if c.EOF {
			value = "\x04" // the end of file as terminals send it; Jupyter uses it, too
		}
		return l.write(jupyter.Stdin, &jupyter.Message{
			Header: jupyter.NewHeader(c.Type, l.session, "e2b"), Parent: parent, Content: jupyter.Encode(jupyter.InputReply{Value: value}),
		})
	case "interrupt_request":
		return l.write(jupyter.Control, &jupyter.Message{Header: jupyter.NewHeader(c.Type, l.session, "e2b")})
	}
	return l.sendRequest(c)
}

func (l *Link) sendRequest(c *link.Command) error {
	l.order.Lock()
	defer l.order.Unlock()
	t := &exchanges{id: c.ID, header: jupyter.Header{MsgType: c.Type}, unannounced: c.Type != "execute_request"}
	t.overtime = time.AfterFunc(l.patience, func() { l.late(t) })
	l.talk, l.count = t, messageCount{}
	if !answered[c.Type] {
		return l.refuse(t, errorReply("NotImplementedError", fmt.Sprintf("%.40q is not supported", c.Type)))
	}
	before, after, err := assignments(l.spec.Language, c.Env, l.environ)
	if err != nil {
		return l.refuse(t, errorReply("NotImplementedError", err.Error()))
	}
	content := c.Content
	if c.Type == "execute_request" {
		if content, t.unannounced, err = unstopped(content); err != nil {
			return err
		}
	}
	silent := func(code string) func() (bool, jupyter.Header, error) {
		return func() (bool, jupyter.Header, error) { return l.askSilent(code) }
	}
	if before != "" {
		t.queue = append(t.queue, silent(before))
	}
	t.queue = append(t.queue, func() (bool, jupyter.Header, error) {
		header := jupyter.NewHeader(c.Type, l.session, "e2b")
		return false, header, l.write(jupyter.Shell, &jupyter.Message{Header: header, Content: content, Buffers: c.Buffers})
	})
	if c.Type == "execute_request" && l.info.Engine == denoEngine {
		t.queue = append(t.queue, func() (bool, jupyter.Header, error) { return l.askMark(t) })
	}
	if after != "" {
		t.queue = append(t.queue, silent(after))
	}
	if c.Type == "execute_request" {
		t.queue = append(t.queue, l.barrier)
	}
	return l.ask(t)
}

func (l *Link) askSilent(code string) (hidden bool, header jupyter.Header, err error) {
	return l.askHidden("execute_request", jupyter.ExecuteRequest{Code: code, Silent: true, UserExpressions: map[string]string{}})
}

func (l *Link) askHidden(msgType string, content any) (hidden bool, header jupyter.Header, err error) {
	header = jupyter.NewHeader(msgType, l.session, "e2b")
	return true, header, l.write(jupyter.Shell, &jupyter.Message{Header: header, Content: jupyter.Encode(content)})
}

// refuse answers a request itself, without the kernel. The caller holds l.order.
func (l *Link) refuse(t *exchanges, answer json.RawMessage) error {
	t.replied, t.idle, t.answer = true, true, answer
	if t.header.MsgType == "execute_request" {
		if err := l.take(&link.Message{Type: "error", Content: answer}); err != nil {
			return err
		}
	}
	return l.proceed()
}

// unstopped returns the content of an execute_request without stop_on_error. The [Kernel] has the
// queue, and decides which requests an error aborts. With stop_on_error, kernels would sometimes
// abort a request that arrives just after the error.
func unstopped(content json.RawMessage) (_ json.RawMessage, silent bool, err error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(content, &fields); err != nil {
		return nil, false, err
	}
	silent = string(fields["silent"]) == "true"
	fields["stop_on_error"] = json.RawMessage("false")
	content, err = json.Marshal(fields)
	return content, silent, err
}
