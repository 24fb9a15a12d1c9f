package control

import (
	"net/http"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
)

// templates are the templates that every service has. They differ only in name:
// both include the interpreter.
var templates = []lifecycle.Template{
	{ID: "localbasetemplate000", Alias: "base"},
	{ID: "localcodeinterpreter", Alias: "code-interpreter-v1"},
}

// findTemplate resolves an alias or id, with an optional tag. Only the default
// tag exists.
func findTemplate(reference string) (lifecycle.Template, error) {
	name, tag, _ := strings.Cut(reference, ":")
	name, tag = normal(name), normal(tag)
	i := slices.IndexFunc(templates, func(t lifecycle.Template) bool { return t.Alias == name || t.ID == name })
	switch {
	case i < 0:
		return lifecycle.Template{}, errorf(http.StatusNotFound, "template '%s' not found", bounded(reference))
	case tag != "" && tag != "default":
		return lifecycle.Template{}, errorf(http.StatusNotFound, "template '%s' has no tag '%s'", templates[i].Alias, bounded(tag))
	}
	return templates[i], nil
}

func normal(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

func (s *Service) alias(w http.ResponseWriter, r *http.Request) error {
	t, err := findTemplate(r.PathValue("alias"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		TemplateID string `json:"templateID"`
		Public     bool   `json:"public"`
	}{t.ID, true})
	return nil
}
