package api

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TemplateService makes the calls about templates, from which sandboxes are created. It is safe
// for concurrent use.
//
// A reference to a template is its id or a name, "name" or "team/name". A tag behind the name
// selects one build: "name:tag".
type TemplateService struct{ client *Client }

// BuildStatus is the status of a build of a template. A service may use values other than the
// constants here.
type BuildStatus string

// These are the statuses of a build.
const (
	BuildWaiting  BuildStatus = "waiting"
	BuildBuilding BuildStatus = "building"
	BuildReady    BuildStatus = "ready"
	BuildError    BuildStatus = "error"
)

// Template describes a template.
type Template struct {
	ID string `json:"templateID"`
	// BuildID is the id of the last build that succeeded.
	BuildID string `json:"buildID"`
	// Names are the template's names with the team in front. Aliases are the same names without
	// the team.
	Names   []string `json:"names"`
	Aliases []string `json:"aliases"`
	// Public reports whether other teams may use the template.
	Public bool `json:"public"`
	// CPUs, MemoryBytes and DiskBytes are the resources of each sandbox.
	CPUs        int   `json:"cpuCount"`
	MemoryBytes int64 `json:"memoryBytes"`
	DiskBytes   int64 `json:"diskBytes"`
	// EnvdVersion is the version of envd, the daemon inside its sandboxes.
	EnvdVersion string      `json:"envdVersion"`
	BuildStatus BuildStatus `json:"buildStatus"`
	CreatedAt   time.Time   `json:"createdAt"`
	UpdatedAt   time.Time   `json:"updatedAt"`
	// LastSpawnedAt is the time when the last sandbox was created from the template; nil if
	// there was none.
	LastSpawnedAt *time.Time `json:"lastSpawnedAt"`
	// SpawnCount is the number of sandboxes created from the template. BuildCount is the number
	// of its builds.
	SpawnCount int64 `json:"spawnCount"`
	BuildCount int64 `json:"buildCount"`
	// Engine is the engine of a local cloud that runs the template's sandboxes; empty for other
	// services.
	Engine Engine `json:"engine"`
}

// TemplateDetail is a template with a page of its builds. Older services set only Builds, ID,
// Names, Aliases, Public, SpawnCount and the times.
type TemplateDetail struct {
	Template
	// Builds are the builds of this page, newest first.
	Builds []TemplateBuild `json:"builds"`
	// NextToken is the token of the next page of builds; empty on the last page.
	NextToken string `json:"-"`
}

// TemplateBuild is a build of a template.
type TemplateBuild struct {
	ID          string      `json:"buildID"`
	Status      BuildStatus `json:"status"`
	CPUs        int         `json:"cpuCount"`
	MemoryBytes int64       `json:"memoryBytes"`
	DiskBytes   int64       `json:"diskBytes"`
	EnvdVersion string      `json:"envdVersion"`
	CreatedAt   time.Time   `json:"createdAt"`
	UpdatedAt   time.Time   `json:"updatedAt"`
	// FinishedAt is the time of the build's end; nil while it has not ended.
	FinishedAt *time.Time `json:"finishedAt"`
}

// TemplateListParams selects a part of a list. The zero value selects all.
type TemplateListParams struct {
	// PageSize limits the entries of a page, 1 to 100. Zero means the service's default, 100.
	PageSize int
	// NextToken is the token of the page to return; empty means the first page.
	NextToken string
}

// TemplatePage is one page of a list.
type TemplatePage struct {
	Templates []Template
	// NextToken is the token of the next page; empty on the last page.
	NextToken string
}

// List iterates over the team's templates, and fetches each page when it is needed. It yields an
// error at most once, as the last item. The iterator may be used again. List does not modify p.
func (s *TemplateService) List(ctx context.Context, p *TemplateListParams) iter.Seq2[Template, error] {
	var params TemplateListParams
	if p != nil {
		params = *p
	}
	return pages("templates", params.NextToken, func(token string) ([]Template, string, error) {
		page, err := s.ListPage(ctx, &TemplateListParams{PageSize: params.PageSize, NextToken: token})
		if err != nil {
			return nil, "", err
		}
		return page.Templates, page.NextToken, nil
	})
}

// ListPage returns one page of templates. A service that does not support pages returns all
// templates at once.
func (s *TemplateService) ListPage(ctx context.Context, p *TemplateListParams) (*TemplatePage, error) {
	if p == nil {
		p = &TemplateListParams{}
	}
	query := url.Values{}
	setPage(query, p.PageSize, p.NextToken)
	templates, head, err := list[Template](ctx, s.client, "a template", call{method: http.MethodGet, path: "/v2/templates", query: query})
	if isMissingRoute(err) {
		templates, head, err = list[Template](ctx, s.client, "a template", call{method: http.MethodGet, path: "/templates"})
	}
	if err != nil {
		return nil, err
	}
	return &TemplatePage{templates, head.header.Get(protocol.HeaderNextToken)}, nil
}

// TemplateName describes the template with a given name.
type TemplateName struct {
	TemplateID string `json:"templateID"`
	// Public reports whether other teams may use the template.
	Public bool `json:"public"`
}

// Resolve returns the template with the given name. The error is [ErrNotFound] if there is no such
// template or the template does not have the tag in the name. It is [ErrForbidden] if the template
// belongs to another team.
func (s *TemplateService) Resolve(ctx context.Context, name string) (*TemplateName, error) {
	path, err := referencePath("/templates/aliases/", "template", name, "")
	if err != nil {
		return nil, err
	}
	found := &TemplateName{}
	if _, err := s.client.do(ctx, call{method: http.MethodGet, path: path}, found); err != nil {
		return nil, err
	}
	return found, nil
}

// TemplateGetParams selects the builds to return. The zero value selects the newest.
type TemplateGetParams struct {
	// PageSize limits the builds of a page, 1 to 100. Zero means the service's default, 100.
	PageSize int
	// NextToken is the token of the page to return; empty means the first page.
	NextToken string
}

// Get describes a template of the team with its builds. It needs the template's id; Resolve
// returns the id for a name.
func (s *TemplateService) Get(ctx context.Context, id string, p *TemplateGetParams) (*TemplateDetail, error) {
	path, err := objectPath("/templates/", "template", id, "")
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	if p != nil {
		setPage(query, p.PageSize, p.NextToken)
	}
	detail := &TemplateDetail{}
	head, err := s.client.do(ctx, call{method: http.MethodGet, path: path, query: query}, detail)
	if err != nil {
		return nil, err
	}
	detail.NextToken = head.header.Get(protocol.HeaderNextToken)
	return detail, nil
}

// Delete deletes a template with all its builds; it ignores a tag in the reference. The error
// is [ErrConflict] while sandboxes that were created from the template exist, running or
// paused. It is [ErrNotFound] when there is no such template.
func (s *TemplateService) Delete(ctx context.Context, reference string) error {
	return s.client.deleteTemplate(ctx, "template", reference)
}

func (c *Client) deleteTemplate(ctx context.Context, what, reference string) error {
	path, err := referencePath("/templates/", what, reference, "")
	if err != nil {
		return err
	}
	_, err = c.do(ctx, call{method: http.MethodDelete, path: path}, nil)
	return conflictOf(err)
}

// TemplateUpdateParams contains the changes to a template.
type TemplateUpdateParams struct {
	// Public sets whether other teams may use the template; nil changes nothing.
	Public *bool `json:"public,omitempty"`
}

// Update changes a template and returns its names. In a local cloud, Public has no effect, because
// there is only one team.
func (s *TemplateService) Update(ctx context.Context, reference string, p *TemplateUpdateParams) (names []string, err error) {
	path, err := referencePath("/templates/", "template", reference, "")
	if err != nil {
		return nil, err
	}
	if p == nil {
		p = &TemplateUpdateParams{}
	}
	var answer struct {
		Names []string `json:"names"`
	}
	_, err = s.client.do(ctx, call{method: http.MethodPatch, path: "/v2" + path, body: p}, &answer)
	if isMissingRoute(err) { // the first generation of the route has an empty answer
		_, err = s.client.do(ctx, call{method: http.MethodPatch, path: path, body: p}, nil)
	}
	return answer.Names, err
}
