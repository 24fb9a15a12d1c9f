package localcloud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// Taken is the space of the items of one kind.
type Taken struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"` // the bytes that the items take on the disk
}

// Space is the space that snapshots and templates take in a state directory.
type Space struct {
	// Layers is the space of the files of snapshots and templates, and of files that sandboxes share.
	Layers Taken `json:"layers"`
	// Cache is the space of the cached steps of builds, which need not run again. Its bytes are the
	// bytes of layers that only such steps need.
	Cache Taken `json:"cache"`
	// Uploads is the space of the archives that clients uploaded for builds.
	Uploads Taken `json:"uploads"`
}

// spaceOf returns the space of a state directory that this process has open.
func spaceOf(ctx context.Context, s *store.Store) (space Space, err error) {
	layers, err := s.Usage(ctx, store.Layers)
	if err != nil {
		return space, err
	}
	uploads, err := s.Usage(ctx, store.Uploads)
	if err != nil {
		return space, err
	}
	for _, bytes := range uploads {
		space.Uploads.add(bytes)
	}
	steps, _ := s.Records(store.Cache) // a damaged one does not count
	space.Cache.Count = len(steps)
	needed, err := namedLayers(s)
	for id, bytes := range layers {
		if err != nil || needed(id) {
			space.Layers.add(bytes)
		} else {
			space.Cache.Bytes += bytes
		}
	}
	return space, nil
}

func (t *Taken) add(bytes int64) {
	t.Count++
	t.Bytes += bytes
}

// namedLayers returns a function that reports whether a snapshot, a template or a sandbox needs a
// layer, because one of their records contains the layer's id. If a record cannot be read,
// namedLayers returns an error, because that record may need any layer.
func namedLayers(s *store.Store) (func(id string) bool, error) {
	templates, templatesErr := s.Records(store.Templates)
	sandboxes, sandboxesErr := s.Records(store.Sandboxes)
	all := append(templates, sandboxes...)
	return func(id string) bool {
		for _, r := range all {
			if bytes.Contains(r.Value, []byte(id)) {
				return true
			}
		}
		return false
	}, errors.Join(templatesErr, sandboxesErr)
}

// surveySpace returns the visible part of the space of a state directory that another process has
// open. It cannot determine the layers that only cached steps need.
func surveySpace(ctx context.Context, dir string) (space Space, err error) {
	for table, taken := range map[store.Table]*Taken{store.Layers: &space.Layers, store.Uploads: &space.Uploads} {
		all, err := store.Survey(ctx, dir, table)
		if err != nil {
			return space, err
		}
		for _, one := range all {
			taken.add(one.Bytes)
		}
	}
	return space, nil
}

// EmptyCache removes cached steps of builds, their archives and container images, and the layers
// that nothing else needs. The state directory dir must not be in use by a process.
func EmptyCache(ctx context.Context, dir string) (err error) {
	s, err := openState(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = closeState(s, err) }()
	for _, table := range []store.Table{store.Cache, store.Images, store.Uploads} {
		if err := deleteAll(s, table, func(string) bool { return false }); err != nil {
			return err
		}
	}
	needed, err := namedLayers(s)
	if err != nil {
		return err
	}
	return deleteAll(s, store.Layers, needed)
}

// deleteAll deletes all records of a table for which keep returns false.
func deleteAll(s *store.Store, table store.Table, keep func(id string) bool) error {
	all, err := s.Records(table)
	for _, r := range all {
		if !keep(r.ID) {
			err = errors.Join(err, s.Delete(table, r.ID))
		}
	}
	return err
}

// Space asks the local cloud for the space of its state directory.
func (r Record) Space(ctx context.Context) (space Space, err error) {
	return space, r.ask(ctx, http.MethodGet, "/local/space", &space)
}

// EmptyCache makes the local cloud remove cached steps of builds, their archives and container
// images, except those that a running build needs.
func (r Record) EmptyCache(ctx context.Context) error {
	return r.ask(ctx, http.MethodDelete, "/local/space/cache", nil)
}

const (
	askLimit  = 30 * time.Second
	maxAnswer = 1 << 16
)

// ask calls an endpoint that only local clouds have, and that package api therefore does not
// support.
func (r Record) ask(ctx context.Context, method, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, r.URL+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("X-API-Key", r.Key)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("the local cloud: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("the local cloud: %s %s: %w", method, path, err)
	case response.StatusCode >= http.StatusMultipleChoices:
		return fmt.Errorf("the local cloud answers %s to %s %s: one of another version of e2bctl may be running", response.Status, method, path)
	case answer == nil:
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("the local cloud: %s %s: the answer is not the expected JSON: %w", method, path, err)
	}
	return nil
}
