package control

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

// snapshotAnswer describes a snapshot.
type snapshotAnswer struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
	// Memory reports whether the snapshot has the memory. The service does not have this field,
	// because it keeps the memory by default. If a request to this cloud does not set memory, only
	// this field shows whether the memory was kept.
	Memory bool `json:"memory"`
}

func answerOfSnapshot(t templates.Template, tag string, memory bool) snapshotAnswer {
	return snapshotAnswer{SnapshotID: fmt.Sprintf("%s:%s", cmp.Or(t.FullName(), t.ID), tag), Names: namesOf(t.FullName()), Memory: memory}
}

func (s *Service) snapshot(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Name string `json:"name"`
		// Memory is true for the mode full of clients, and false for their mode filesystem. If it
		// is nil, the memory is saved if possible.
		Memory *bool `json:"memory"`
	}
	if err := decode(w, r, &q, false); err != nil {
		return err
	}
	var name *templates.Reference
	tag := templates.DefaultTag
	if q.Name != "" {
		ref := templates.ParseReference(q.Name)
		if err := s.templates.CheckName(&ref); err != nil {
			return err
		}
		name, tag = &ref, cmp.Or(ref.Tag, tag)
	}
	id, err := sandboxID(r)
	if err != nil {
		return err
	}
	made, err := s.sandboxes.Snapshot(r.Context(), id, q.Memory)
	if err != nil {
		return err
	}
	sb := made.Sandbox
	t, err := s.templates.Add(name, templates.Build{Sandbox: id, Has: sb.Resources.Over(sb.Template.Resources), Content: templates.Content{
		Layers: made.Layers, Envs: sb.Envs, User: sb.Template.User, Home: sb.Template.Home, Workdir: sb.Template.Workdir, Start: sb.Template.Start, Ready: sb.Template.Ready, Engine: sb.Template.Engine, Image: sb.Template.Image,
	}})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, answerOfSnapshot(t, tag, made.Memory))
	return nil
}

func (s *Service) listSnapshots(w http.ResponseWriter, r *http.Request) error {
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	source, _, _ := strings.Cut(query.Get("sandboxID"), "-")
	name := templates.ParseReference(query.Get("name"))
	if err := name.CheckTeam(); err != nil {
		return err
	}
	named := query.Get("name") != ""
	page, err := pageOf(w, query, func(after *ordered.Position, limit int) []templates.Snapshot {
		return s.templates.Snapshots(after, limit, func(one *templates.Snapshot) bool {
			return (source == "" || one.Build.Sandbox == source) && (!named || one.NamedBy(&name))
		})
	}, (*templates.Snapshot).Position)
	if err != nil {
		return err
	}
	answer := make([]snapshotAnswer, len(page))
	for i, one := range page {
		answer[i] = snapshotAnswer{SnapshotID: one.ID(), Names: namesOf(one.FullName()), Memory: s.templates.HasMemory(one.Build)}
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// The default timeout of a fork, in seconds, and the maximum number of forks in one request. SDKs
// sent 300 seconds before they left the timeout to the server. The service's schema has 15 seconds.
const (
	forkTimeout = 300
	maxForks    = 100
)

// forkEntry is a child of a fork, or the error that prevented the child.
type forkEntry struct {
	Sandbox *answer   `json:"sandbox,omitempty"`
	Error   *apiError `json:"error,omitempty"`
	Memory  *bool     `json:"memory,omitempty"` // whether the child has the source's memory
}

func (s *Service) fork(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Timeout *int32 `json:"timeout"`
		Count   *int32 `json:"count"`
		Memory  *bool  `json:"memory"`
	}
	if err := decode(w, r, &q, true); err != nil {
		return err
	}
	lifetime, err := s.lifetime(q.Timeout, dialect{timeout: forkTimeout})
	if err != nil {
		return err
	}
	count := 1
	if q.Count != nil {
		count = int(*q.Count)
	}
	switch limit := s.sandboxes.MaxSandboxes(); {
	case lifetime == 0:
		return errorf(http.StatusBadRequest, "Timeout must be greater than 0")
	case count < 1 || count > maxForks:
		return invalid("count must be between 1 and %d", maxForks)
	case count >= limit:
		return errorf(http.StatusBadRequest, "count must be lower than the maximum number of concurrent sandboxes, %d", limit)
	}
	id, err := sandboxID(r)
	if err != nil {
		return err
	}
	forks, err := s.sandboxes.Fork(r.Context(), id, count, lifetime, q.Memory)
	if busy, ok := errors.AsType[*lifecycle.StateError](err); ok && busy.State == lifecycle.Paused {
		return errorf(http.StatusConflict, "Sandbox %s is paused: resume it first", bounded(id))
	}
	if err != nil {
		return err
	}
	answer := make([]forkEntry, len(forks))
	for i, fork := range forks {
		answer[i] = s.forkEntry(fork)
	}
	writeJSON(w, http.StatusCreated, answer)
	return nil
}

func (s *Service) forkEntry(fork lifecycle.Fork) forkEntry {
	if fork.Err != nil {
		return forkEntry{Error: answerFor(fork.Err)}
	}
	s.templates.Spawn(fork.Sandbox.Template.ID)
	child := s.answer(fork.Sandbox)
	return forkEntry{Sandbox: &child, Memory: &fork.Memory}
}
