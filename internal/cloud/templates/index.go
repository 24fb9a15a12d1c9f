package templates

import (
	"cmp"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
)

// index finds templates for requests: by id, by name, and in the order of lists.
type index struct {
	byID      map[string]*Template
	byName    map[string]*Template // keyed by full name
	listed    []*Template          // without the built-in templates that are for a single engine
	snapshots []*Snapshot
	builds    int // number of builds of all templates
}

// Snapshot is a tag of a template that points to a snapshot of a sandbox.
type Snapshot struct {
	of       Template // only id and name are used
	Tag      string
	TaggedAt time.Time
	Build    Build
}

// FullName returns the template's name with the team, but without the tag. It returns "" if the
// template has no name.
func (s *Snapshot) FullName() string { return s.of.FullName() }

// ID returns a reference to the snapshot, for [ParseReference].
func (s *Snapshot) ID() string { return cmp.Or(s.FullName(), s.of.ID) + ":" + s.Tag }

// NamedBy reports whether a reference names the snapshot. A reference without a tag names every
// snapshot of its template.
func (s *Snapshot) NamedBy(ref *Reference) bool {
	return ref.Names(&s.of) && (ref.Tag == "" || ref.HasTag(s.Tag, &s.Build))
}

// Position returns the position of the snapshot in lists. Lists are ordered by the time of the
// tag.
func (s *Snapshot) Position() ordered.Position { return ordered.Position{At: s.TaggedAt, ID: s.ID()} }

// Position returns the position of the template in lists.
func (t *Template) Position() ordered.Position { return ordered.Position{At: t.CreatedAt, ID: t.ID} }

// Position returns the position of the build in the list of its template's builds.
func (b *Build) Position() ordered.Position { return ordered.Position{At: b.CreatedAt, ID: b.ID} }

// Orders of lists. In each of them, the newest element is first.
var (
	byCreation ordered.By[*Template] = (*Template).Position
	byTag      ordered.By[*Snapshot] = (*Snapshot).Position
	byAge      ordered.By[Build]     = func(b Build) ordered.Position { return b.Position() }
)

func newIndex() index {
	return index{byID: map[string]*Template{}, byName: map[string]*Template{}}
}

// find returns the template that a reference names. It ignores the tag of the reference. If there
// is no such template, find returns nil. No template has a name that is the id of a template.
func (x *index) find(ref Reference) *Template {
	for _, t := range []*Template{x.byName[ref.Name], x.byName[Team+"/"+ref.Name], x.byID[ref.Name]} { // built-in templates first
		if t != nil && ref.Names(t) {
			return t
		}
	}
	return nil
}

// put adds a template, or replaces the template with the same id.
func (x *index) put(t *Template) {
	former := x.byID[t.ID]
	if former != nil {
		x.builds -= len(former.Builds)
		x.untag(former, t)
	}
	x.builds += len(t.Builds)
	x.byID[t.ID] = t
	if name := t.FullName(); name != "" {
		x.byName[name] = t
	}
	if !t.variant() {
		x.listed = byCreation.Put(x.listed, t)
	}
	for tag, points := range t.Tags {
		if former != nil && former.Tags[tag] == points {
			continue
		}
		if build, ok := t.Build(points.Build); ok && build.Sandbox != "" {
			x.snapshots = byTag.Put(x.snapshots, snapshotOf(t, tag, build))
		}
	}
}

func snapshotOf(t *Template, tag string, build Build) *Snapshot {
	return &Snapshot{Template{ID: t.ID, Name: t.Name}, tag, t.Tags[tag].CreatedAt, build}
}

// remove removes a template.
func (x *index) remove(t *Template) {
	x.builds -= len(t.Builds)
	x.untag(t, &Template{})
	delete(x.byID, t.ID)
	delete(x.byName, t.FullName())
	x.listed = byCreation.Delete(x.listed, t.Position())
}

// untag removes from the lists each snapshot of former whose tag is different or missing in now.
func (x *index) untag(former, now *Template) {
	for tag, points := range former.Tags {
		if now.Tags[tag] != points {
			x.snapshots = byTag.Delete(x.snapshots, snapshotOf(former, tag, Build{}).Position())
		}
	}
}
