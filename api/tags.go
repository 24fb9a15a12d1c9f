package api

import (
	"context"
	"net/http"
	"time"
)

// TemplateTag is a tag of a template. A template has at most one tag of each name.
type TemplateTag struct {
	// Name is the tag; "default" stands for no tag.
	Name string `json:"tag"`
	// BuildID is the id of the build that the tag points to.
	BuildID string `json:"buildID"`
	// CreatedAt is the time when the tag was pointed to this build.
	CreatedAt time.Time `json:"createdAt"`
}

// AssignedTags contains tags and the id of the build that they point to.
type AssignedTags struct {
	Tags    []string `json:"tags"`
	BuildID string   `json:"buildID"`
}

// Tags returns the tags of a template.
func (s *TemplateService) Tags(ctx context.Context, reference string) ([]TemplateTag, error) {
	path, err := referencePath("/templates/", "template", reference, "/tags")
	if err != nil {
		return nil, err
	}
	tags, _, err := list[TemplateTag](ctx, s.client, "a tag", call{method: http.MethodGet, path: path})
	return tags, err
}

// AssignTags makes tags of a template point to the build that target names, such as "name:v1". It
// creates missing tags and moves existing ones. The error is [ErrNotFound] when target does not
// exist.
func (s *TemplateService) AssignTags(ctx context.Context, target string, tags []string) (*AssignedTags, error) {
	request := struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}{target, tags}
	assigned := &AssignedTags{}
	if _, err := s.client.do(ctx, call{method: http.MethodPost, path: tagsPath, body: request}, assigned); err != nil {
		return nil, err
	}
	return assigned, nil
}

// RemoveTags removes tags of a template. The argument name contains no tag. The builds remain. The
// tag "default" cannot be removed.
func (s *TemplateService) RemoveTags(ctx context.Context, name string, tags []string) error {
	request := struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}{name, tags}
	_, err := s.client.do(ctx, call{method: http.MethodDelete, path: tagsPath, body: request}, nil)
	return err
}

const tagsPath = "/templates/tags"
