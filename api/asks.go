package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
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

// QuestionsParams selects questions about one sandbox. The zero value selects all open
// questions.
type QuestionsParams struct {
	// After is the id of the latest question that the caller has received. It confirms to the service
	// that the caller has received all questions up to that id.
	After int64
}

// Questions returns the open questions about a sandbox whose network has [Egress].Ask, oldest
// first. If no question is open, Questions waits for one for about 20 seconds, and returns an empty
// list if none came. The sandbox may be paused. If there is no such sandbox, the error is
// [ErrNotFound].
//
// If nobody answers a question within 30 seconds, the service answers it with no. The service also
// answers no if for 5 seconds no program answers the question or calls Questions. A program
// therefore keeps calling Questions while it decides about earlier questions.
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
	// Allow reports whether the sandbox may reach the port of the host.
	Allow bool `json:"allow"`
}

// Answer answers a question about a sandbox. The service applies the answer until the sandbox ends.
// Answer returns [ErrConflict] if the question is no longer open.
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

// CheckAsk returns [errors.ErrUnsupported] if the service would ignore [Egress].Ask. It returns
// nil if the service asks before a sandbox reaches a host.
func (s *SandboxService) CheckAsk(ctx context.Context) error {
	return s.client.checkFeature(ctx, "ask", "Egress.Ask: only the local cloud asks before a host is reached")
}

// checkFeature returns an error unless the service reports the feature called name. Only the local
// cloud has such features. Other services would ignore a request for the feature.
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

// features returns the features of a local cloud; nil for another service.
func (c *Client) features(ctx context.Context) (map[string]any, error) {
	var features map[string]any
	_, err := c.do(ctx, call{method: http.MethodGet, path: "/local/features"}, &features)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return features, err
}

// canServe returns an error if the service would ignore a part of e that only the local cloud knows. For
// a nil e, it returns nil.
func (s *SandboxService) canServe(ctx context.Context, e *Egress) error {
	if e == nil {
		return nil
	}
	for host, rules := range e.Rules {
		if !slices.ContainsFunc(rules, func(r NetworkRule) bool { return r.Requests != nil }) {
			continue
		}
		if err := s.client.checkFeature(ctx, "requests", fmt.Sprintf("Egress.Rules: only a local cloud checks the requests to %s", host)); err != nil {
			return err
		}
		break
	}
	if !e.Ask {
		return nil
	}
	return s.CheckAsk(ctx)
}
