package templates

import (
	"cmp"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
)

// index finds templates for requests: by id, by name, and in the order of lists.
type index struct {
	byID      map[string]*Template
	byName    map[string]*Template // by full name
	listed    []*Template          // without the built-in ones of single engines
	snapshots []*Snapshot
	builds    int // of all templates
}

// Snapshot is a tag of a template that points to a snapshot of a sandbox.
type Snapshot struct {
	of       Template // its id and name only
	Tag      string
	TaggedAt time.Time
	Build    Build
}

// FullName returns the name with the team, without the tag; "" without a name.
func (s *Snapshot) FullName() string { return s.of.FullName() }

// ID names the snapshot, for [ParseReference].
func (s *Snapshot) ID() string { return cmp.Or(s.FullName(), s.of.ID) + ":" + s.Tag }

// NamedBy reports whether a reference names the snapshot, or without a tag its template.
func (s *Snapshot) NamedBy(ref *Reference) bool {
	return ref.Names(&s.of) && (ref.Tag == "" || ref.HasTag(s.Tag, &s.Build))
}

// Position returns the position of the snapshot in lists, by the time of the tag.
func (s *Snapshot) Position() ordered.Position { return ordered.Position{At: s.TaggedAt, ID: s.ID()} }

// Position returns the position of the template in lists.
func (t *Template) Position() ordered.Position { return ordered.Position{At: t.CreatedAt, ID: t.ID} }

// Position returns the position of the build among those of its template.
func (b *Build) Position() ordered.Position { return ordered.Position{At: b.CreatedAt, ID: b.ID} }

// The orders of lists, each with the newest first.
var (
	byCreation ordered.By[*Template] = (*Template).Position
	byTag      ordered.By[*Snapshot] = (*Snapshot).Position
	byAge      ordered.By[Build]     = func(b Build) ordered.Position { return b.Position() }
)

func newIndex() index {
	return index{byID: map[string]*Template{}, byName: map[string]*Template{}}
}

// find returns the template that a reference names, with any tag, or nil if there is none. A
// name can never be an id.
func (x *index) find(ref Reference) *Template {
	for _, t := range []*Template{x.byName[ref.Name], x.byName[Team+"/"+ref.Name], x.byID[ref.Name]} { // built-in ones first
		if t != nil && ref.Names(t) {
			return t
		}
	}
	return nil
}

// put adds a template, or replaces the one with its id.
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

// remove is the reverse of put.
func (x *index) remove(t *Template) {
	x.builds -= len(t.Builds)
	x.untag(t, &Template{})
	delete(x.byID, t.ID)
	delete(x.byName, t.FullName())
	x.listed = byCreation.Delete(x.listed, t.Position())
}

// untag removes the snapshots whose tags have changed.
func (x *index) untag(former, now *Template) {
	for tag, points := range former.Tags {
		if now.Tags[tag] != points {
			x.snapshots = byTag.Delete(x.snapshots, snapshotOf(former, tag, Build{}).Position())
		}
	}
}
