package control

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// askWait bounds the time for which a request for open questions waits for a question.
const askWait = 20 * time.Second

// features answers with the features that this cloud has and the service does not. Clients
// check them before they rely on such a feature.
func (s *Service) features(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]any{"ask": true, "engines": true, "stages": true, "mounts": true, "image": true, "resources": true, "resize": true, "idle": true, "requests": true, "architecture": s.options.Architecture})
	return nil
}

// asks answers with those open questions of a sandbox that come after a given question. If there
// are no such questions, it waits up to askWait for one.
func (s *Service) asks(w http.ResponseWriter, r *http.Request) error {
	asks, err := s.asksOf(r)
	if err != nil {
		return err
	}
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	var after int64
	if text := query.Get("after"); text != "" {
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || after < 0 {
			return invalid("after must be the id of a question")
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), askWait)
	defer cancel()
	questions := asks.Open(ctx, after)
	if questions == nil {
		questions = []network.Question{}
	}
	writeJSON(w, http.StatusOK, map[string]any{"questions": questions})
	return nil
}

// answerAsk answers an open question. If the question is no longer open, the status is 409.
func (s *Service) answerAsk(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		ID    int64 `json:"id"`
		Allow bool  `json:"allow"`
	}
	if err := decode(w, r, &q, false); err != nil {
		return err
	}
	asks, err := s.asksOf(r)
	if err != nil {
		return err
	}
	if !asks.Answer(q.ID, q.Allow) {
		return errorf(http.StatusConflict, "question %d is not open: it has been answered, or nobody answered in time", q.ID)
	}
	noContent(w)
	return nil
}

func (s *Service) asksOf(r *http.Request) (*network.Asks, error) {
	id, err := sandboxID(r)
	if err != nil {
		return nil, err
	}
	return s.sandboxes.Asks(id)
}
