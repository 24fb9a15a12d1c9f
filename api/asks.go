package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// Question asks whether a sandbox may reach a port of a host.
type Question struct {
	// ID is greater than the ids of earlier questions.
	ID int64 `json:"id"`
	// Host is a name in lower case, or an address.
	Host string `json:"host"`
	// Port is the TCP port.
	Port int `json:"port"`
}

// QuestionsParams selects questions. The zero value selects all.
type QuestionsParams struct {
	// After is the id of the latest question that the program has already. It tells
	// the service that the questions up to this one have arrived.
	After int64
}

// Questions returns the open questions about a sandbox whose network has [Egress].Ask, oldest
// first. If there are none it waits for about 20 seconds, and may return none. The service answers
// a question with no if nobody has answered it within 30 seconds, or if for 5 seconds no program
// has answered it or asked for later questions: a program asks for the next ones while it thinks
// about these. The sandbox may be paused. It returns [ErrNotFound] if there is no such sandbox.
func (s *SandboxService) Questions(ctx context.Context, id string, p *QuestionsParams) ([]Question, error) {
	if p == nil {
		p = &QuestionsParams{}
	}
	path, err := asksPath(id)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Questions []*Question `json:"questions"`
	}
	query := url.Values{"after": {strconv.FormatInt(p.After, 10)}}
	if _, err := s.client.do(ctx, call{method: http.MethodGet, path: path, query: query}, &answer); err != nil {
		return nil, err
	}
	return values("a question", answer.Questions)
}

// AnswerParams answers a question.
type AnswerParams struct {
	// ID is the id of the question.
	ID int64 `json:"id"`
	// Allow says whether the port of the host may be reached.
	Allow bool `json:"allow"`
}

// Answer answers a question about a sandbox for as long as the sandbox lives. It
// returns [ErrConflict] if the question is not open any longer.
func (s *SandboxService) Answer(ctx context.Context, id string, p *AnswerParams) error {
	path, err := asksPath(id)
	if err != nil {
		return err
	}
	if p == nil {
		p = &AnswerParams{}
	}
	_, err = s.client.do(ctx, call{method: http.MethodPost, path: path, body: p, once: true}, nil)
	return err
}

func asksPath(id string) (string, error) {
	path, err := sandboxPath(id, "/asks")
	return "/local" + path, err
}

// CheckAsk returns an error unless the service asks before a host is reached, as [Egress].Ask
// requires: [errors.ErrUnsupported] if the service would ignore that.
func (s *SandboxService) CheckAsk(ctx context.Context) error {
	return s.client.checkFeature(ctx, "ask", "Egress.Ask: only the local cloud asks before a host is reached")
}

// checkFeature returns an error unless the service has what only the local cloud has:
// another one would ignore it.
func (c *Client) checkFeature(ctx context.Context, name, refusal string) error {
	features, err := c.features(ctx)
	if err != nil {
		return err
	}
	if features[name] != true {
		return fmt.Errorf("api: %w by this service: %s", errors.ErrUnsupported, refusal)
	}
	return nil
}

// features returns what this local cloud can do; nil for a service that is not a local cloud.
func (c *Client) features(ctx context.Context) (map[string]any, error) {
	var features map[string]any
	_, err := c.do(ctx, call{method: http.MethodGet, path: "/local/features"}, &features)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return features, err
}

// canAsk is CheckAsk if the rules set Ask. Otherwise, and for nil, it returns nil.
func (s *SandboxService) canAsk(ctx context.Context, e *Egress) error {
	if e == nil || !e.Ask {
		return nil
	}
	return s.CheckAsk(ctx)
}
