package control

import (
	"net/http"
	"slices"
	"strings"
)

// template is one that sandboxes can be made from.
type template struct {
	id    string // 20 characters, as all template ids
	alias string
}

// templates are those every service has. They differ in name only: both have
// the interpreter.
var templates = []template{
	{id: "localbasetemplate000", alias: "base"},
	{id: "localcodeinterpreter", alias: "code-interpreter-v1"},
}

// findTemplate resolves an alias or id, with an optional tag. Only the default
// tag exists.
func findTemplate(reference string) (template, error) {
	name, tag, _ := strings.Cut(reference, ":")
	name, tag = normal(name), normal(tag)
	i := slices.IndexFunc(templates, func(t template) bool { return t.alias == name || t.id == name })
	switch {
	case i < 0:
		return template{}, errorf(http.StatusNotFound, "template '%s' not found", bounded(reference))
	case tag != "" && tag != "default":
		return template{}, errorf(http.StatusNotFound, "template '%s' has no tag '%s'", templates[i].alias, bounded(tag))
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
	}{t.id, true})
	return nil
}
