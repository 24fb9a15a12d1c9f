package templates

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// MaxBuilds bounds the number of builds of all templates.
const MaxBuilds = 10_000

// Options configure a [Registry].
type Options struct {
	Store  *store.Store
	Layers *layers.Set  // from Store
	Images []Image      // further built-in templates, for the server's engine
	Logger *slog.Logger // nil: no log
}

// Registry contains all templates. It is safe for concurrent use.
type Registry struct {
	options Options

	mu      sync.Mutex // also held while a change is written to the store
	index   index
	spawned map[string]Spawned
}

// Spawned is the number of sandboxes that were created from a template since the local cloud
// started, and the time of the last of these creations.
type Spawned struct {
	Count int
	Last  time.Time
}

// Open returns the templates of a store. The registry holds the layers of the templates. If a
// template cannot be read, Open keeps the template's record and all layers, because another version
// may be able to read the record.
func Open(o Options) *Registry {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Registry{options: o, index: newIndex(), spawned: map[string]Spawned{}}
	ctx := context.Background()
	all, err := o.Store.Records(store.Templates)
	if err != nil {
		o.Logger.ErrorContext(ctx, "templates that cannot be read are left alone", "error", err)
	}
	complete := err == nil
	for _, entry := range all {
		t, err := load(entry)
		if err == nil {
			_, err = o.Layers.Hold(t.layers()...)
		}
		if err == nil {
			err = r.endLeft(&t)
		}
		if err != nil {
			o.Logger.ErrorContext(ctx, "a template that cannot be read is left alone", "template", entry.ID, "error", err)
			complete = false
			continue
		}
		r.index.put(&t)
	}
	for _, t := range builtIn() { // last, so that stored templates cannot replace them
		if !t.variant() || r.index.find(Reference{Name: t.Name}) == nil { // a template of an older version may have this name
			r.index.put(&t)
		}
	}
	for _, image := range o.Images {
		t := image.template()
		r.index.put(&t)
	}
	if !complete {
		o.Layers.Keep()
	}
	return r
}

// savedVersion is the version of the stored format. load reads this version and all earlier
// ones.
const savedVersion = 2 // version 2 added unfinished builds

// saved is a template as stored. Its field names, and those of [Template], [Tag] and [Build],
// are part of the format.
type saved struct {
	Version  int
	Template Template
}

func load(entry store.Record) (Template, error) {
	var s saved
	if err := json.Unmarshal(entry.Value, &s); err != nil {
		return Template{}, err
	}
	t := s.Template
	switch {
	case s.Version < 1 || s.Version > savedVersion:
		return Template{}, fmt.Errorf("its version is %d, and this program knows up to %d", s.Version, savedVersion)
	case t.ID != entry.ID || t.BuiltIn || len(t.Builds) == 0:
		return Template{}, errors.New("it has no id of its own or no builds")
	case t.Name != "" && !aName().MatchString(t.Name):
		return Template{}, fmt.Errorf("its name is %q", t.Name)
	}
	byAge.Sort(t.Builds)
	for i := range t.Builds {
		b := &t.Builds[i]
		if b.Status == "" { // stored by version 1
			b.Status, b.FinishedAt = Ready, b.CreatedAt
		}
		b.Engine = cmp.Or(b.Engine, engine.Room) // records without an engine are older than the other engines
	}
	for tag := range t.Tags {
		if b, ok := t.Tagged(tag); !ok || b.Status != Ready {
			return Template{}, fmt.Errorf("its tag %q points to no build that is ready", tag)
		}
	}
	return t, nil
}

// endLeft marks as failed each build that an earlier process left unfinished.
func (r *Registry) endLeft(t *Template) error {
	now := time.Now().UTC()
	changed := *t
	for _, b := range t.Builds {
		if b.pending() {
			b.Status, b.FinishedAt, b.Failure = Failed, now, &Failure{Message: "the local cloud ended during the build: build it again"}
			changed = changed.withBuild(b, nil, now)
		}
	}
	if changed.UpdatedAt.Equal(t.UpdatedAt) {
		return nil
	}
	value, err := json.Marshal(saved{savedVersion, changed})
	if err == nil {
		_, err = r.options.Store.Put(store.Templates, t.ID, value, "")
	}
	*t = changed
	return err
}

// Find returns the template that a reference names, and the build to which the reference's tag
// points.
func (r *Registry) Find(ref Reference) (Template, Build, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.findLocked(ref)
}

func (r *Registry) findLocked(ref Reference) (Template, Build, error) {
	t := r.index.find(ref)
	if t == nil {
		return Template{}, Build{}, notFound(&ref)
	}
	build, err := t.named(&ref)
	return *t, build, err
}

// named returns the ready build that a reference names, by tag or by id.
func (t *Template) named(ref *Reference) (Build, error) {
	if build, ok := t.Tagged(ref.tag()); ok {
		return build, nil
	}
	if build, ok := t.Build(ref.Tag); ok && build.Status == Ready {
		return build, nil
	}
	for _, b := range slices.Backward(t.Builds) {
		if b.pending() && (slices.Contains(b.Tags, ref.tag()) || b.ID == ref.Tag) {
			return Build{}, refusef(NotFound, "%s: it is not ready yet: the build that it is to name is %s", ref.missing(), b.Status)
		}
	}
	return Build{}, refusef(NotFound, "%s", ref.missing())
}

// Get returns the template that a reference names. It ignores the tag of the reference.
func (r *Registry) Get(ref Reference) (Template, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.index.find(ref)
	if t == nil {
		return Template{}, notFound(&ref)
	}
	return *t, nil
}

// All returns all templates, newest first. It leaves out the built-in templates that are for a
// single engine.
func (r *Registry) All() []Template { return r.Page(nil, math.MaxInt, nil) }

// Page returns at most limit matching templates that follow the position after, in the order of
// All. If after is nil, the page begins with the first template. A nil match matches all templates.
// Page does not call match for the templates after the last template that it returns.
func (r *Registry) Page(after *ordered.Position, limit int, match func(*Template) bool) []Template {
	r.mu.Lock()
	defer r.mu.Unlock()
	return copied(byCreation.Page(r.index.listed, after, limit, match))
}

// Snapshots returns a page of the snapshots of all templates. Its parameters have the same meaning
// as those of Page.
func (r *Registry) Snapshots(after *ordered.Position, limit int, match func(*Snapshot) bool) []Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return copied(byTag.Page(r.index.snapshots, after, limit, match))
}

func copied[T any](page []*T) []T {
	all := make([]T, len(page))
	for i, one := range page {
		all[i] = *one
	}
	return all
}

// HasMemory reports whether a build contains the saved memory of a sandbox. Sandboxes of such a
// build continue from this memory.
func (r *Registry) HasMemory(b Build) bool {
	_, memory := r.options.Layers.Split(b.Layers...)
	return memory != ""
}

// Spawn records that a sandbox was created from a template.
func (r *Registry) Spawn(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.index.byID[id] != nil {
		r.spawned[id] = Spawned{r.spawned[id].Count + 1, time.Now().UTC()}
	}
}

// Spawned returns the number and the time that Spawn has recorded for a template.
func (r *Registry) Spawned(id string) Spawned {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spawned[id]
}

// Add creates a build that takes over the caller's layers. If Add fails, it releases these layers.
// Add adds the build to the template with the name of ref, and points the tag of ref to the build.
// If there is no such template, Add creates it. If ref is nil, Add creates a template without a
// name.
func (r *Registry) Add(ref *Reference, build Build) (Template, error) {
	build.Status = Ready
	made, _, err := r.add(ref, build, func(t Template, b Build) Template {
		b.FinishedAt = b.CreatedAt
		tag := DefaultTag
		if ref != nil {
			tag = ref.tag()
		}
		return t.withBuild(b, []string{tag}, b.CreatedAt)
	})
	if err != nil {
		r.options.Layers.Release(build.Layers...)
	}
	return made, err
}

// Request creates a build that waits for Begin. The build belongs to the template with the name of
// ref. If there is no such template, Request creates it. When the build is ready, tags and the tag
// of ref will point to it. Until then, no sandbox can be created from the build. Request returns
// the template and the build.
func (r *Registry) Request(ref Reference, tags []string, build Build) (Template, Build, error) {
	if err := ref.CheckName(); err != nil {
		return Template{}, Build{}, err
	}
	if ref.Tag != "" {
		tags = append([]string{ref.Tag}, tags...)
	}
	if len(tags) == 0 {
		tags = []string{DefaultTag}
	}
	var err error
	if build.Tags, err = checkTags(&ref, tags); err != nil {
		return Template{}, Build{}, err
	}
	build.Status = Waiting
	return r.add(&ref, build, func(t Template, b Build) Template { return t.withBuild(b, nil, b.CreatedAt) })
}

// add adds a build to the template with the name of a reference. If there is no such template, add
// creates it.
func (r *Registry) add(ref *Reference, build Build, with func(Template, Build) Template) (Template, Build, error) {
	now := time.Now().UTC()
	build.ID, build.CreatedAt = newUUID(), now
	made := Template{ID: newID(), CreatedAt: now}
	r.mu.Lock()
	if ref != nil {
		made.Name = ref.Name
		if t := r.namedLocked(ref); t != nil {
			made = *t
		}
	}
	var unused []string
	err := r.addableLocked(made, ref)
	if err == nil {
		made = with(made, build)
		unused, err = r.putLocked(made)
	}
	r.mu.Unlock()
	r.options.Layers.Release(unused...)
	return made, build, err
}

// Begin starts a build that Request created.
func (r *Registry) Begin(template, build string) error {
	return r.changeBuild(template, build, func(t Template, b Build, now time.Time) (Template, error) {
		if b.Status != Waiting {
			return Template{}, refusef(Invalid, "build '%s' cannot be started: it is %s", build, began[b.Status])
		}
		b.Status = Building
		return t.withBuild(b, nil, now), nil
	})
}

var began = map[Status]string{Building: "started already", Ready: "ready already", Failed: "over: it failed or was superseded; request another"}

// Finish makes a started build ready, and points the tags of the build to it. The build takes over
// the caller's layers in content. If Finish fails, it releases these layers.
func (r *Registry) Finish(template, build string, content Content) error {
	err := r.changeBuild(template, build, func(t Template, b Build, now time.Time) (Template, error) {
		if b.Status != Building {
			return Template{}, refusef(Invalid, "build '%s' is not being built", build)
		}
		b.Status, b.FinishedAt, b.Content = Ready, now, content
		return t.withBuild(b, b.Tags, now), nil
	})
	if err != nil {
		r.options.Layers.Release(content.Layers...)
	}
	return err
}

// Fail marks an unfinished build as failed.
func (r *Registry) Fail(template, build string, failure Failure) error {
	return r.changeBuild(template, build, func(t Template, b Build, now time.Time) (Template, error) {
		if !b.pending() {
			return Template{}, refusef(Invalid, "build '%s' is over", build)
		}
		b.Status, b.FinishedAt, b.Failure = Failed, now, &failure
		return t.withBuild(b, nil, now), nil
	})
}

func (r *Registry) changeBuild(template, build string, f func(t Template, b Build, now time.Time) (Template, error)) error {
	_, err := r.change(Reference{Name: template, text: template}, func(t Template, now time.Time) (Template, error) {
		b, ok := t.Build(build)
		if !ok || t.ID != template {
			return Template{}, refusef(NotFound, "template '%s' has no build '%s'", clip.Text(template, maxMessage), clip.Text(build, maxMessage))
		}
		return f(t, b, now)
	})
	return err
}

// CheckName returns an error if no build can be added to the template with the name of ref.
func (r *Registry) CheckName(ref *Reference) error {
	if err := ref.CheckName(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.namedLocked(ref); t != nil {
		return r.addableLocked(*t, ref)
	}
	return r.addableLocked(Template{Name: ref.Name}, ref)
}

// namedLocked returns the template whose name or id is the name of the reference. It ignores the
// namespace of the reference.
func (r *Registry) namedLocked(ref *Reference) *Template {
	return r.index.find(Reference{Name: ref.Name})
}

func (r *Registry) addableLocked(t Template, ref *Reference) error {
	switch {
	case r.index.builds >= MaxBuilds:
		return refusef(Full, "there are %d builds of templates, which is the limit: delete templates and snapshots that are no longer needed", MaxBuilds)
	case t.BuiltIn:
		return refusef(Invalid, "'%s' is the name of a built-in template: choose another", ref)
	case ref != nil && t.Name != ref.Name:
		return refusef(Conflict, "'%s' is the id of a template: choose another name", ref)
	}
	return nil
}

// putLocked stores a template, or replaces the template with the same id. It returns the layers
// that are no longer needed. The caller must release them after unlocking.
func (r *Registry) putLocked(t Template) (unused []string, err error) {
	value, err := json.Marshal(saved{savedVersion, t})
	if err == nil {
		_, err = r.options.Store.Put(store.Templates, t.ID, value, "")
	}
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	if former := r.index.byID[t.ID]; former != nil {
		for _, b := range former.Builds {
			if !slices.ContainsFunc(t.Builds, func(now Build) bool { return now.ID == b.ID }) {
				unused = append(unused, b.Layers...)
			}
		}
	}
	r.index.put(&t)
	return unused, nil
}

// Delete removes the template that ref names, with all its builds. It ignores the tag of ref. used
// reports whether sandboxes use a template. If sandboxes use this template, Delete returns an error
// and removes nothing.
func (r *Registry) Delete(ref Reference, used func(id string) bool) error {
	r.mu.Lock()
	t, err := r.ownLocked(ref)
	switch {
	case err != nil:
	case used(t.ID):
		err = refusef(Invalid, "template '%s' cannot be deleted: running or paused sandboxes use it", &ref)
	default:
		err = r.options.Store.Delete(store.Templates, t.ID)
	}
	if err != nil {
		r.mu.Unlock()
		return err
	}
	r.index.remove(&t)
	delete(r.spawned, t.ID)
	r.mu.Unlock()
	r.options.Layers.Release(t.layers()...)
	return nil
}

// ownLocked returns the template that ref names, if clients may change it. Otherwise it returns an
// error.
func (r *Registry) ownLocked(ref Reference) (Template, error) {
	t := r.index.find(ref)
	switch {
	case t == nil:
		return Template{}, notFound(&ref)
	case t.BuiltIn:
		return Template{}, refusef(BuiltIn, "'%s' is a built-in template, which cannot be changed", &ref)
	}
	return *t, nil
}

// Publish records whether a template is public.
func (r *Registry) Publish(ref Reference, public bool) (Template, error) {
	return r.change(ref, func(t Template, now time.Time) (Template, error) {
		t.Public, t.UpdatedAt = public, now
		return t, nil
	})
}

// Assign points tags to the build that a reference names. It returns the build, and the tags in
// their normal form.
func (r *Registry) Assign(ref Reference, tags []string) (build Build, assigned []string, err error) {
	if assigned, err = checkTags(&ref, tags); err != nil {
		return Build{}, nil, err
	}
	_, err = r.change(ref, func(t Template, now time.Time) (Template, error) {
		var err error
		if build, err = t.named(&ref); err != nil {
			return Template{}, err
		}
		return t.withBuild(build, assigned, now), nil
	})
	return build, assigned, err
}

// Unassign removes tags of the template that a reference names. The reference must not have a tag.
// The default tag and the last tag cannot be removed: Unassign then returns an error, and keeps all
// tags. Missing tags are ignored.
func (r *Registry) Unassign(ref Reference, tags []string) error {
	tags, err := checkTags(&ref, tags)
	switch {
	case err != nil:
		return err
	case ref.Tag != "":
		return refusef(Invalid, "the name '%s' must not have a tag here", &ref)
	case slices.Contains(tags, DefaultTag):
		return refusef(Invalid, "the tag '%s' cannot be removed", DefaultTag)
	}
	_, err = r.change(ref, func(t Template, now time.Time) (Template, error) {
		changed := t.withoutTags(tags, now)
		if len(changed.Tags) == 0 {
			return Template{}, refusef(Invalid, "template '%s' has no other tags: delete the template", &ref)
		}
		return changed, nil
	})
	return err
}

func checkTags(ref *Reference, tags []string) ([]string, error) {
	if err := ref.CheckTeam(); err != nil {
		return nil, err
	}
	if len(tags) == 0 {
		return nil, refusef(Invalid, "tags must have a tag at least")
	}
	var all []string
	for _, tag := range tags {
		tag, err := ParseTag(tag)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(all, tag) {
			all = append(all, tag)
		}
	}
	return all, nil
}

// change applies f to a template, and stores the result.
func (r *Registry) change(ref Reference, f func(t Template, now time.Time) (Template, error)) (Template, error) {
	r.mu.Lock()
	t, err := r.ownLocked(ref)
	if err == nil {
		t, err = f(t, time.Now().UTC())
	}
	var unused []string
	if err == nil {
		unused, err = r.putLocked(t)
	}
	r.mu.Unlock()
	r.options.Layers.Release(unused...)
	return t, err
}
