package control

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

// findTemplate returns the template for a reference of a client. If the template names no engine,
// the sandbox gets the cloud's engine. The sandbox keeps this engine, even if a later cloud has
// another engine.
func (s *Service) findTemplate(reference string) (lifecycle.Template, templates.Build, error) {
	t, build, err := s.templates.Find(templates.ParseReference(reference))
	return lifecycle.Template{
		ID: t.ID, Build: build.ID, Alias: t.Name, User: build.User, Home: build.Home, Workdir: build.Workdir, Start: build.Start, Ready: build.Ready,
		Engine: s.engineOf(build.Engine), Image: build.Image, Resources: build.Resources(),
	}, build, err
}

func (s *Service) alias(w http.ResponseWriter, r *http.Request) error {
	ref := templates.ParseReference(r.PathValue("alias"))
	if err := ref.CheckTeam(); err != nil {
		return err
	}
	t, _, err := s.templates.Find(ref)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		TemplateID string `json:"templateID"`
		Public     bool   `json:"public"`
	}{t.ID, t.Public})
	return nil
}

// templateAnswer is an element of a list of templates.
type templateAnswer struct {
	TemplateID    string     `json:"templateID"`
	BuildID       string     `json:"buildID"`
	CPUCount      int        `json:"cpuCount"`
	MemoryMB      int        `json:"memoryMB"`
	DiskSizeMB    int        `json:"diskSizeMB"`
	Public        bool       `json:"public"`
	Aliases       []string   `json:"aliases"`
	Names         []string   `json:"names"`
	CreatedAt     time.Time  `json:"createdAt"`
	UpdatedAt     time.Time  `json:"updatedAt"`
	CreatedBy     *struct{}  `json:"createdBy"` // always null: users are unknown
	LastSpawnedAt *time.Time `json:"lastSpawnedAt"`
	SpawnCount    int        `json:"spawnCount"`
	BuildCount    int        `json:"buildCount"`
	EnvdVersion   string     `json:"envdVersion"`
	BuildStatus   string     `json:"buildStatus"`
	IsDefault     bool       `json:"isDefault"`
	Description   string     `json:"description,omitempty"`
	Engine        string     `json:"engine,omitempty"` // not a field of the service
}

// engineOf returns its argument, or the cloud's own engine if the argument is "".
func (s *Service) engineOf(named engine.Name) engine.Name { return cmp.Or(named, s.options.Engine) }

// resourcesOf returns the resources of a sandbox of the engine named, if the resources asked were
// requested for it. A disk size of 0 means that there is no limit.
func (s *Service) resourcesOf(named engine.Name, asked engine.Resources) Resources {
	name := s.engineOf(named)
	r, other := s.options.Of[name]
	if !other {
		r = s.options.Resources
	}
	if s.options.Bounds != nil {
		asked = asked.Within(s.options.Bounds(name))
	}
	r.CPUs = cmp.Or(int(math.Ceil(asked.CPUs)), r.CPUs)
	r.MemoryMB, r.DiskMB = cmp.Or(int(asked.MemoryBytes>>20), r.MemoryMB), cmp.Or(int(asked.DiskBytes>>20), r.DiskMB)
	if s.options.NoDiskLimit != nil && s.options.NoDiskLimit(name) {
		r.DiskMB = 0
	}
	return r
}

// resources returns the resources of a build's sandboxes.
func (s *Service) resources(b templates.Build) Resources {
	return s.resourcesOf(b.Engine, b.Resources())
}

// has returns the resources of a sandbox.
func (s *Service) has(sb lifecycle.Sandbox) Resources {
	return s.resourcesOf(sb.Template.Engine, sb.Resources.Over(sb.Template.Resources))
}

func (s *Service) templateAnswer(t templates.Template) templateAnswer {
	spawned, latest := s.templates.Spawned(t.ID), t.Latest()
	has := s.resources(latest)
	a := templateAnswer{
		TemplateID: t.ID, BuildID: latest.ID, CPUCount: has.CPUs, MemoryMB: has.MemoryMB, DiskSizeMB: has.DiskMB,
		Public: t.Public, Aliases: namesOf(t.Name), Names: namesOf(t.FullName()), CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt,
		SpawnCount: spawned.Count, BuildCount: len(t.Builds), EnvdVersion: s.options.EnvdVersion, BuildStatus: string(latest.Status),
		IsDefault: t.BuiltIn, Description: t.Description, Engine: string(s.engineOf(latest.Engine)),
	}
	if spawned.Count > 0 {
		a.LastSpawnedAt = &spawned.Last
	}
	return a
}

// namesOf returns a list with name, or an empty list if name is "".
func namesOf(name string) []string {
	if name == "" {
		return []string{}
	}
	return []string{name}
}

// ownTemplates returns a function that lists the templates of a query. It leaves out snapshots,
// which have their own list.
func (s *Service) ownTemplates(query *query) (func(after *ordered.Position, limit int) []templates.Template, error) {
	if team := query.Get("teamID"); team != "" && team != teamID {
		return nil, errorf(http.StatusBadRequest, "no access to that team: this local cloud has only %s", teamID)
	}
	return func(after *ordered.Position, limit int) []templates.Template {
		return s.templates.Page(after, limit, func(t *templates.Template) bool { return !t.Snapshot() })
	}, nil
}

// defaultTemplates answers with the built-in templates.
func (s *Service) defaultTemplates(w http.ResponseWriter, _ *http.Request) error {
	s.writeTemplates(w, slices.DeleteFunc(s.templates.All(), func(t templates.Template) bool { return !t.BuiltIn }))
	return nil
}

func (s *Service) listTemplates(w http.ResponseWriter, r *http.Request) error {
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	list, err := s.ownTemplates(query)
	if err != nil {
		return err
	}
	s.writeTemplates(w, list(nil, math.MaxInt))
	return nil
}

func (s *Service) pageTemplates(w http.ResponseWriter, r *http.Request) error {
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	list, err := s.ownTemplates(query)
	if err != nil {
		return err
	}
	page, err := pageOf(w, query, list, (*templates.Template).Position)
	if err != nil {
		return err
	}
	s.writeTemplates(w, page)
	return nil
}

func (s *Service) writeTemplates(w http.ResponseWriter, page []templates.Template) {
	answer := make([]templateAnswer, len(page))
	for i, t := range page {
		answer[i] = s.templateAnswer(t)
	}
	writeJSON(w, http.StatusOK, answer)
}

// buildAnswer describes a build of a template.
type buildAnswer struct {
	BuildID     string    `json:"buildID"`
	Status      string    `json:"status"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	FinishedAt  time.Time `json:"finishedAt,omitzero"`
	CPUCount    int       `json:"cpuCount"`
	MemoryMB    int       `json:"memoryMB"`
	DiskSizeMB  int       `json:"diskSizeMB"`
	EnvdVersion string    `json:"envdVersion"`
}

// getTemplate answers with a template and a page of its builds, newest first.
func (s *Service) getTemplate(w http.ResponseWriter, r *http.Request) error {
	t, err := s.templates.Get(templates.ParseReference(r.PathValue("id")))
	if err != nil {
		return err
	}
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	page, err := pageOf(w, query, t.Newest, (*templates.Build).Position)
	if err != nil {
		return err
	}
	answer := struct {
		templateAnswer
		Builds []buildAnswer `json:"builds"`
	}{s.templateAnswer(t), make([]buildAnswer, len(page))}
	for i, b := range page {
		has, updated := s.resources(b), b.FinishedAt
		if updated.IsZero() {
			updated = b.CreatedAt
		}
		answer.Builds[i] = buildAnswer{
			BuildID: b.ID, Status: string(b.Status), CreatedAt: b.CreatedAt, UpdatedAt: updated, FinishedAt: b.FinishedAt,
			CPUCount: has.CPUs, MemoryMB: has.MemoryMB, DiskSizeMB: has.DiskMB, EnvdVersion: answer.EnvdVersion,
		}
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// deleteTemplate deletes a template or a snapshot, with all its builds. Like the service, it
// ignores the tag.
func (s *Service) deleteTemplate(w http.ResponseWriter, r *http.Request) error {
	ref := templates.ParseReference(r.PathValue("id"))
	t, err := s.templates.Get(ref)
	if err != nil {
		return err
	}
	err = s.templates.Delete(ref, func(id string) bool {
		return len(s.sandboxes.List(func(sb *lifecycle.Sandbox) bool { return sb.Template.ID == id })) > 0
	})
	if err != nil {
		return err
	}
	s.builds.Drop(t.ID)
	s.deleted(w, r)
	return nil
}

// publish records whether a template is public. This has no effect, since there is only one
// team.
func (s *Service) publish(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Public *bool `json:"public"`
	}
	if err := decode(w, r, &q, false); err != nil {
		return err
	}
	t, err := s.templates.Get(templates.ParseReference(r.PathValue("id")))
	if err == nil && q.Public != nil {
		t, err = s.templates.Publish(templates.ParseReference(r.PathValue("id")), *q.Public)
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		Names []string `json:"names"`
	}{namesOf(t.FullName())})
	return nil
}

const pathBelowTemplate = "/templates/{id}/{rest...}"

// belowTemplate returns the GET calls below the path of a template. Their patterns are relative to
// this path. The table of the API cannot have these calls, because their patterns would conflict
// with an alias that is called tags.
func (s *Service) belowTemplate() []route {
	return []route{
		{"ListTags", "GET", "tags", s.listTags},
		{"CountTags", "GET", "tags/count", s.countTags},
		{"CheckTag", "GET", "tags/exists", s.tagExists},
		{"ListTagGroups", "GET", "tags/groups", s.tagGroups},
		{"ListTagAssignments", "GET", "tags/{tag}/assignments", s.tagAssignments},
		{"GetUpload", "GET", "files/{hash}", s.fileLink},
		{"GetBuild", "GET", "builds/{build}/status", s.buildStatus},
		{"GetBuildLogs", "GET", "builds/{build}/logs", s.buildLogs},
	}
}

// ofTemplate answers the calls of belowTemplate.
func (s *Service) ofTemplate(w http.ResponseWriter, r *http.Request) error {
	for _, call := range s.belowTemplate() {
		if values, ok := match(call.path, r.PathValue("rest")); ok {
			for name, value := range values {
				r.SetPathValue(name, value)
			}
			return call.handler(w, r)
		}
	}
	return errorf(http.StatusNotFound, "no such path in the API: %s", bounded(r.URL.Path))
}

// match matches a path with a pattern like http.ServeMux, but without wildcards for several
// segments. It returns the values of the wildcards.
func match(pattern, path string) (values map[string]string, ok bool) {
	parts, given := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(parts) != len(given) {
		return nil, false
	}
	values = map[string]string{}
	for i, part := range parts {
		name, named := strings.CutPrefix(part, "{")
		switch {
		case named:
			values[strings.TrimSuffix(name, "}")] = given[i]
		case part != given[i]:
			return nil, false
		}
	}
	return values, true
}
