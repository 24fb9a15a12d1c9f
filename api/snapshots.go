package api

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// SnapshotService makes the calls about snapshots. It is safe for concurrent use.
type SnapshotService struct{ client *Client }

// Snapshot is the state of a sandbox at one moment. Any number of new sandboxes can start from
// it: pass its ID as the Template of [CreateParams].
type Snapshot struct {
	// ID is the id of the template that the service made for the snapshot, followed by the tag. The ID
	// of a named snapshot contains the name.
	ID string `json:"snapshotID"`
	// Names are the names of the template in ID, with the team in front; empty for a snapshot without
	// a name.
	Names []string `json:"names"`
	// Memory reports whether the snapshot has the memory of the sandbox, so that the processes
	// continue in its copies. False means that it has only the files. Nil means that the
	// service does not report it.
	Memory *bool `json:"memory"`
}

// SnapshotMode is the part of a sandbox's state that a snapshot keeps. A service may use values
// other than the constants here.
type SnapshotMode string

// These are the modes of a snapshot.
const (
	// SnapshotFull keeps files and memory.
	SnapshotFull SnapshotMode = "full"
	// SnapshotFilesystem keeps only the files. Sandboxes from such a snapshot start anew.
	SnapshotFilesystem SnapshotMode = "filesystem"
)

// SnapshotParams sets how to make a snapshot. The zero value makes a snapshot without a name, with
// as much of the sandbox's state as the service can save.
type SnapshotParams struct {
	// Name is the name of the snapshot, with or without a tag: "name", "name:tag",
	// "team/name:tag". If the name exists, the snapshot becomes its newest version. A snapshot
	// without a name can be found only by its ID.
	Name string
	// Mode is the part of the state to keep; empty means the service's default. A service that cannot
	// keep memory returns [ErrInvalidArgument] for [SnapshotFull]. By default it keeps only the files.
	// [Snapshot].Memory reports whether the memory was kept.
	Mode SnapshotMode
}

type snapshotRequest struct {
	Name   string `json:"name,omitempty"`
	Memory *bool  `json:"memory,omitempty"`
}

// Create makes a snapshot of a running sandbox, which continues to run. The error is
// [ErrNotFound] when there is no such sandbox or it is paused, [ErrConflict] while the sandbox
// changes its state, and [ErrUnavailable] when the service cannot make the snapshot now.
//
// Create is retried only when provably nothing was sent, or when the service answers 429. If the
// answer is lost, the snapshot may exist nevertheless: List then finds it.
func (s *SnapshotService) Create(ctx context.Context, sandboxID string, p *SnapshotParams) (*Snapshot, error) {
	path, err := sandboxPath(sandboxID, "/snapshots")
	if err != nil {
		return nil, err
	}
	if p == nil {
		p = &SnapshotParams{}
	}
	request := snapshotRequest{Name: p.Name}
	if request.Memory, err = keepsMemory("snapshot", string(p.Mode)); err != nil {
		return nil, err
	}
	snapshot := &Snapshot{}
	if _, err := s.client.do(ctx, call{method: http.MethodPost, path: path, body: request, once: true, saves: true}, snapshot); err != nil {
		return nil, err
	}
	if !isReference(snapshot.ID) {
		return nil, errors.New("api: the service's answer has no usable snapshotID")
	}
	return snapshot, nil
}

// SnapshotListParams filters a list of snapshots. The zero value selects all snapshots.
type SnapshotListParams struct {
	// SandboxID selects the snapshots of one sandbox.
	SandboxID string
	// Name is a name or id. Without a tag it means all tags.
	Name string
	// PageSize limits the entries of a page, 1 to 100. Zero means the service's default, 100.
	PageSize int
	// NextToken is the token of the page to return; empty means the first page.
	NextToken string
}

// SnapshotPage is one page of a list.
type SnapshotPage struct {
	Snapshots []Snapshot
	// NextToken is the token of the next page; empty on the last page.
	NextToken string
}

// List iterates over all snapshots, and fetches each page when it is needed. It yields an error
// at most once, as the last item. The iterator may be used again. List does not change p.
func (s *SnapshotService) List(ctx context.Context, p *SnapshotListParams) iter.Seq2[Snapshot, error] {
	var params SnapshotListParams
	if p != nil {
		params = *p
	}
	return pages("snapshots", params.NextToken, func(token string) ([]Snapshot, string, error) {
		of := params
		of.NextToken = token
		page, err := s.ListPage(ctx, &of)
		if err != nil {
			return nil, "", err
		}
		return page.Snapshots, page.NextToken, nil
	})
}

// ListPage returns one page of snapshots.
func (s *SnapshotService) ListPage(ctx context.Context, p *SnapshotListParams) (*SnapshotPage, error) {
	if p == nil {
		p = &SnapshotListParams{}
	}
	query := url.Values{}
	if p.SandboxID != "" {
		query.Set("sandboxID", p.SandboxID)
	}
	if p.Name != "" {
		query.Set("name", p.Name)
	}
	setPage(query, p.PageSize, p.NextToken)
	snapshots, head, err := list[Snapshot](ctx, s.client, "a snapshot", call{method: http.MethodGet, path: "/snapshots", query: query})
	if err != nil {
		return nil, err
	}
	return &SnapshotPage{snapshots, head.header.Get(protocol.HeaderNextToken)}, nil
}

// Delete deletes a snapshot and all other snapshots with the same name, whatever their tags,
// because the service keeps them as one template. The error is [ErrConflict] while sandboxes
// that were created from it exist. It is [ErrNotFound] when there is no such snapshot.
func (s *SnapshotService) Delete(ctx context.Context, id string) error {
	return s.client.deleteTemplate(ctx, "snapshot", id)
}
