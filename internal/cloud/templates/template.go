package templates

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Template is a template at one moment. What its maps and slices refer to never changes.
type Template struct {
	ID                   string
	Name                 string // "": it has none
	BuiltIn              bool
	Public               bool // as asked; it changes nothing, since there is one team
	CreatedAt, UpdatedAt time.Time
	Builds               []Build // oldest first
	Tags                 map[string]Tag
}

// Tag points to a build.
type Tag struct {
	Build     string // its id
	CreatedAt time.Time
}

// Build is one version of a template.
type Build struct {
	ID        string
	CreatedAt time.Time
	Layers    []string          // ids of the layers that sandboxes begin with, lowest first
	Envs      map[string]string // of its sandboxes, unless they are given others
	Sandbox   string            // of which it is a snapshot; "": it is none
}

// FullName returns the name with the team; "" without a name. Built-in templates belong to
// no team.
func (t *Template) FullName() string {
	if t.Name == "" || t.BuiltIn {
		return t.Name
	}
	return Team + "/" + t.Name
}

// Snapshot reports whether it was made from sandboxes only.
func (t *Template) Snapshot() bool {
	return !slices.ContainsFunc(t.Builds, func(b Build) bool { return b.Sandbox == "" })
}

// Tagged returns the build that a tag points to.
func (t *Template) Tagged(tag string) (Build, bool) {
	id := t.Tags[tag].Build
	i := slices.IndexFunc(t.Builds, func(b Build) bool { return b.ID == id })
	if i < 0 {
		return Build{}, false
	}
	return t.Builds[i], true
}

// TagNames returns the tags in order.
func (t *Template) TagNames() []string { return slices.Sorted(maps.Keys(t.Tags)) }

// Newest returns the builds, newest first.
func (t *Template) Newest() []Build {
	return slices.SortedFunc(slices.Values(t.Builds), func(a, b Build) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID, b.ID))
	})
}

// with returns the template with tags that point to one of its builds, or to a new one.
func (t Template) with(build Build, tags []string, now time.Time) Template {
	if !slices.ContainsFunc(t.Builds, func(b Build) bool { return b.ID == build.ID }) {
		t.Builds = append(slices.Clone(t.Builds), build)
	}
	t.Tags = maps.Clone(t.Tags)
	if t.Tags == nil {
		t.Tags = map[string]Tag{}
	}
	for _, tag := range tags {
		t.Tags[tag] = Tag{build.ID, now}
	}
	return t.tidy(now)
}

// without returns the template without tags.
func (t Template) without(tags []string, now time.Time) Template {
	t.Tags = maps.Clone(t.Tags)
	for _, tag := range tags {
		delete(t.Tags, tag)
	}
	return t.tidy(now)
}

// tidy removes the builds that no tag points to.
func (t Template) tidy(now time.Time) Template {
	named := map[string]bool{}
	for _, tag := range t.Tags {
		named[tag.Build] = true
	}
	t.Builds = slices.DeleteFunc(slices.Clone(t.Builds), func(b Build) bool { return !named[b.ID] })
	t.UpdatedAt = now
	return t
}

// layers returns the layers of all builds; one may be there several times.
func (t *Template) layers() []string {
	var all []string
	for _, b := range t.Builds {
		all = append(all, b.Layers...)
	}
	return all
}

// builtIn are the templates that every service has. They differ only in name: both
// include the interpreter.
func builtIn() []Template {
	now := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC) // the same in each list, after a restart, too
	made := func(id, name, build string) Template {
		t := Template{ID: id, Name: name, BuiltIn: true, Public: true, CreatedAt: now}
		return t.with(Build{ID: build, CreatedAt: now}, []string{DefaultTag}, now)
	}
	return []Template{
		made("localbasetemplate000", "base", "00000000-0000-4000-8000-000000000001"),
		made("localcodeinterpreter", "code-interpreter-v1", "00000000-0000-4000-8000-000000000002"),
	}
}

const idLength = 20

func newID() string { return strings.ToLower(rand.Text())[:idLength] }

// newUUID returns a random UUID, which is what clients expect the id of a build to be.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
