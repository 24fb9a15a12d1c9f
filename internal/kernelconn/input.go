package kernelconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// endOfInput makes Python's input() raise EOFError.
const endOfInput = "\x04"

// inputAnswer is the handler's answer to a message that asks for input.
type inputAnswer struct {
	to    jupyter.Header
	value string
	err   error
}

// questions are the requests for input of one execution. A kernel asks one question at a time. When
// it asks again, it has given up the previous question. So there is at most one call of the handler
// at a time, even if hostile code asks all the time.
type questions struct {
	input   func(ctx context.Context, prompt string, password bool) (string, error)
	answers chan inputAnswer // receives the answers of the handler; buffered for the one answer that may come

	cancel context.CancelFunc // cancels the call of the handler that has not returned; nil if there is none
	next   *jupyter.Message   // the question that was asked while that call ran
}

// newQuestions returns questions that the function input answers. If input is nil, the answer to
// each question is endOfInput.
func newQuestions(input func(context.Context, string, bool) (string, error)) *questions {
	if input == nil {
		input = func(context.Context, string, bool) (string, error) { return "", io.EOF }
	}
	return &questions{input: input, answers: make(chan inputAnswer, 1)}
}

// ask calls the handler with m. If the call for the previous question has not returned, ask cancels
// this call. The handler is then called with m when the previous call has ended.
func (q *questions) ask(ctx context.Context, m *jupyter.Message) {
	if q.cancel != nil {
		q.cancel()
		q.next = m
		return
	}
	ctx, q.cancel = context.WithCancel(ctx)
	go func() {
		var request jupyter.InputRequest
		a := inputAnswer{to: m.Header, err: io.EOF}
		if json.Unmarshal(m.Content, &request) == nil {
			a.value, a.err = q.input(ctx, request.Prompt, request.Password)
		}
		q.answers <- a
	}()
}

// answered records that the answer of the handler was received. late means that the kernel had
// already asked the next question. Then answered calls the handler with that question.
func (q *questions) answered(ctx context.Context) (late bool) {
	m := q.next
	q.drop()
	q.cancel, q.next = nil, nil
	if m != nil {
		q.ask(ctx, m)
	}
	return m != nil
}

// drop cancels the call of the handler that has not returned, if there is one.
func (q *questions) drop() {
	if q.cancel != nil {
		q.cancel()
	}
}

// answer sends the answer to a request for input. If the websocket is cut
// meanwhile, the answer is sent again over the next websocket.
func (k *Kernel) answer(a inputAnswer) error {
	if errors.Is(a.err, io.EOF) {
		a.value, a.err = endOfInput, nil
	}
	if a.err != nil {
		return fmt.Errorf("answer the code's request for input: %w", a.err)
	}
	content, err := json.Marshal(jupyter.InputReply{Value: a.value})
	if err != nil {
		return err
	}
	k.write(jupyter.Stdin, "input_reply", a.to, content)
	return nil
}

// turnDown answers a question for which there is no handler. Such a question comes from a thread
// that outlives its cell. Without an answer, the question would forever block the next code that
// asks for input. If m is another message or nil, turnDown does nothing. It ignores an error of the
// connection, because the connection's reader notices this error.
func (k *Kernel) turnDown(m *jupyter.Message) {
	if m != nil && asks(m) {
		_ = k.answer(inputAnswer{to: m.Header, err: io.EOF})
	}
}
