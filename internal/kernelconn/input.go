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

// questions are the requests for input of one execution. A kernel asks one at a
// time: when it asks again it has given up the question before. So the handler is
// called once at a time, too, even if hostile code asks all the time.
type questions struct {
	input   func(ctx context.Context, prompt string, password bool) (string, error)
	answers chan inputAnswer // receives the answers of the handler; has space for the one that may come

	cancel context.CancelFunc // cancels the call of the handler that has not returned; nil if there is none
	next   *jupyter.Message   // the question that was asked while that call ran
}

// newQuestions returns questions that the function input answers. If input is nil, the answer to
// each is the end of the input.
func newQuestions(input func(context.Context, string, bool) (string, error)) *questions {
	if input == nil {
		input = func(context.Context, string, bool) (string, error) { return "", io.EOF }
	}
	return &questions{input: input, answers: make(chan inputAnswer, 1)}
}

// ask calls the handler with m. If the handler has not answered the previous question yet, ask
// cancels that call, and m waits for the call's end.
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

// answered records that an answer was taken. It reports whether the answer came
// too late: then the handler has been asked the next question.
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
// meanwhile, the answer is sent again over the next one.
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

// turnDown answers a question without a handler, from a thread that its cell left
// behind: unanswered, it would block the next code that asks for input forever.
// Other messages, and nil, need no answer. The connection's reader notices an
// error of the connection.
func (k *Kernel) turnDown(m *jupyter.Message) {
	if m != nil && asks(m) {
		_ = k.answer(inputAnswer{to: m.Header, err: io.EOF})
	}
}
