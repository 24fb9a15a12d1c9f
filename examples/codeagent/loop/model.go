package loop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
)

// Model is a model at an endpoint of OpenAI's chat completions protocol. It is safe for
// concurrent use.
type Model struct {
	// URL is the address of the endpoint without /chat/completions, such as
	// "https://api.openai.com/v1".
	URL string
	// Key is the credential. An endpoint without accounts needs no key.
	Key sandbox.Key
	// Name is the model's name at the endpoint.
	Name string
	// Script answers instead of the endpoint. Nil means that the endpoint answers.
	Script Script
}

// Message is one message of a conversation.
type Message struct {
	// Role is "system", "user" or "assistant".
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Completion is the next answer of a model.
type Completion struct {
	Text string
	// Tokens is the number of tokens of the question and the answer; 0 if the endpoint does not
	// report it.
	Tokens int64
}

// StatusError is an answer of the endpoint with a status other than 200. No error of this package
// contains the key, even if the endpoint repeats the key in its answer.
type StatusError struct {
	// Status is the HTTP status.
	Status int
	// Message is the readable part of the endpoint's message.
	Message string
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("the endpoint answered %d %s", e.Status, http.StatusText(e.Status))
	if e.Status == http.StatusUnauthorized {
		text += ": check the key"
	}
	return text + ": " + e.Message
}

const (
	// attempts limits the requests for one question when the endpoint is busy, fails or cannot be
	// reached.
	attempts  = 4
	firstWait = 500 * time.Millisecond
	// longestWait limits the wait that an endpoint can ask for.
	longestWait = time.Minute
	// attemptTimeout limits one request. Slow models need less.
	attemptTimeout = 5 * time.Minute
	// maxAnswer limits the bytes of an answer.
	maxAnswer = 4 << 20
)

// Complete returns the model's next message. If the endpoint is overloaded (429), fails (5xx)
// or cannot be reached, it tries again after the seconds in Retry-After, or else after a
// growing wait.
func (m *Model) Complete(ctx context.Context, chat []Message) (*Completion, error) {
	if m.Script != nil {
		return m.Script.complete(chat)
	}
	if m.Name == "" {
		return nil, errors.New("ask a model: it has no name: set -model or OPENAI_MODEL")
	}
	body, err := json.Marshal(map[string]any{"model": m.Name, "messages": chat})
	if err != nil {
		return nil, fmt.Errorf("ask model %q: %w", m.Name, err)
	}
	for attempt := 0; ; attempt++ {
		answer, after, err := m.ask(ctx, body)
		if err == nil {
			return answer, nil
		}
		if !temporary(err) || attempt+1 == attempts || !sleep(ctx, wait(after, attempt)) {
			return nil, fmt.Errorf("ask model %q: %w", m.Name, err)
		}
	}
}

// ask sends the question once. after is the endpoint's Retry-After.
func (m *Model) ask(ctx context.Context, body []byte) (answer *Completion, after string, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(m.URL, "/")+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	if scheme := request.URL.Scheme; scheme != "http" && scheme != "https" {
		return nil, "", fmt.Errorf("the endpoint %q is no http or https URL", request.URL.Redacted())
	}
	request.Header.Set("Content-Type", "application/json")
	if m.Key != "" {
		request.Header.Set("Authorization", "Bearer "+string(m.Key))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, "", &unreachableError{err}
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, "", &unreachableError{err}
	case response.StatusCode != http.StatusOK:
		return nil, response.Header.Get("Retry-After"), &StatusError{response.StatusCode, m.reason(content)}
	case len(content) > maxAnswer:
		return nil, "", fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	answer, err = parseCompletion(content)
	if err != nil {
		err = fmt.Errorf("the answer is not one of the chat completions protocol: %w: %s", err, m.reason(content))
	}
	return answer, "", err
}

func parseCompletion(content []byte) (*Completion, error) {
	var answer struct {
		Choices []struct{ Message Message }
		Usage   struct {
			Total int64 `json:"total_tokens"`
		}
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		return nil, err
	}
	if len(answer.Choices) == 0 {
		return nil, errors.New("it has no choices")
	}
	return &Completion{answer.Choices[0].Message.Content, max(answer.Usage.Total, 0)}, nil
}

// reason returns the endpoint's message about an error or, without one, the beginning of the
// body. It removes the key.
func (m *Model) reason(content []byte) string {
	var failed struct{ Error struct{ Message string } }
	text := string(content)
	if json.Unmarshal(content, &failed) == nil && failed.Error.Message != "" {
		text = failed.Error.Message
	}
	if m.Key != "" {
		text = strings.ReplaceAll(text, string(m.Key), "[redacted]")
	}
	return fmt.Sprintf("%.300q", text)
}

// unreachableError means that a question received no complete answer.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// temporary reports whether, despite err, the model may answer the same question later.
func temporary(err error) bool {
	if answered, ok := errors.AsType[*StatusError](err); ok {
		return answered.Status == http.StatusTooManyRequests || answered.Status >= 500
	}
	_, ok := errors.AsType[*unreachableError](err)
	return ok
}

func wait(after string, attempt int) time.Duration {
	if seconds, err := strconv.ParseUint(after, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, longestWait)
	}
	return firstWait << attempt
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
