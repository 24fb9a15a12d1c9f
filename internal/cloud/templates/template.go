package templates

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
)

// Template is a template at one time. Its maps and slices never change.
type Template struct {
	ID                   string
	Name                 string // "": the template has no name
	Description          string // "": the template has no description
	BuiltIn              bool
	Public               bool // as requested; has no effect, since there is only one team
	CreatedAt, UpdatedAt time.Time
	Builds               []Build // oldest first
	Tags                 map[string]Tag
}

// Tag points to a build.
type Tag struct {
	Build     string // id of the build
	CreatedAt time.Time
}

// Build is one version of a template.
type Build struct {
	ID        string
	CreatedAt time.Time
	Sandbox   string // sandbox that the build is a snapshot of; "": not a snapshot

	Status     Status
	FinishedAt time.Time // zero for an unfinished build
	Tags       []string  // tags that will point to the build when it is ready
	// CPUs and MemoryMB are the requested values. 0 means that no value was requested. See Resources.
	CPUs, MemoryMB int
	// Has are the requested resources of the sandbox that the build is a snapshot of.
	Has     engine.Resources `json:",omitzero"`
	Failure *Failure         // nil unless the build failed

	Content
}

// Content is the content of a ready build. Sandboxes of the build begin with this content.
type Content struct {
	Layers []string          // ids of the layers, lowest first
	Engine engine.Name       // engine that runs the sandboxes; "" (only in built-in templates): the server's engine
	Image  *engine.Image     // container image whose files are in Layers; nil: sandboxes use the programs of the engine
	Envs   map[string]string // default variables, which a sandbox can override
	// User and Workdir are the default user and directory of processes. "" means the defaults
	// of envd. Workdir may be guest.UserWorkdir. Home is the home of User. "" means /root or a
	// directory in /home.
	User, Home, Workdir string
	// Start is a command that each sandbox runs. Ready is a command that succeeds once the
	// program of Start can be used. "" means that there is no command.
	Start, Ready string
}

// Status is the progress of a build.
type Status string

// Statuses of builds. A build that version 1 stored has no status, and is ready.
const (
	Waiting  Status = "waiting"  // for Begin
	Building Status = "building" // or waiting for other builds
	Ready    Status = "ready"
	Failed   Status = "error"
)

// Failure describes the failure of a build.
type Failure struct {
	Step    string // step that failed: "base", the number of a step, or "finalize"; "": none
	Message string
	Log     []Entry // last entries of the step
}

// Entry is a line in the log of a build.
type Entry struct {
	At      time.Time
	Level   slog.Level
	Step    string // step of the build, as in [Failure]
	Message string
}

// unchosenCPUs and unchosenMemoryMB are the resources that official clients request in every build
// for which their user chose none.
const (
	unchosenCPUs     = 2
	unchosenMemoryMB = 1024
)

// Resources returns the requested resources of the build's sandboxes.
func (b *Build) Resources() engine.Resources {
	if b.CPUs == unchosenCPUs && b.MemoryMB == unchosenMemoryMB {
		return b.Has
	}
	return engine.Resources{CPUs: float64(b.CPUs), MemoryBytes: int64(b.MemoryMB) << 20}.Over(b.Has)
}

// pending reports whether the build can still become ready.
func (b *Build) pending() bool { return b.Status == Waiting || b.Status == Building }

// FullName returns the name with the team. It returns "" if the template has no name. Built-in
// templates belong to no team.
func (t *Template) FullName() string {
	if t.Name == "" || t.BuiltIn {
		return t.Name
	}
	return Team + "/" + t.Name
}

// Snapshot reports whether each build of the template is a snapshot of a sandbox.
func (t *Template) Snapshot() bool {
	return !slices.ContainsFunc(t.Builds, func(b Build) bool { return b.Sandbox == "" })
}

// Latest returns the newest build.
func (t *Template) Latest() Build { return t.Builds[len(t.Builds)-1] }

// Build returns the build with an id. It returns false if there is none.
func (t *Template) Build(id string) (Build, bool) {
	i := slices.IndexFunc(t.Builds, func(b Build) bool { return b.ID == id })
	if i < 0 {
		return Build{}, false
	}
	return t.Builds[i], true
}

// Tagged returns the ready build to which a tag points. It returns false if there is no such
// tag.
func (t *Template) Tagged(tag string) (Build, bool) {
	return t.Build(t.Tags[tag].Build)
}

// TagNames returns the tags in order.
func (t *Template) TagNames() []string { return slices.Sorted(maps.Keys(t.Tags)) }

// Newest returns at most limit builds that follow a position, newest first. A nil position
// stands before the newest build.
func (t *Template) Newest(after *ordered.Position, limit int) []Build {
	return byAge.Page(t.Builds, after, limit, nil)
}

// withBuild returns a copy of the template that contains build. The given tags point to build.
// build replaces a build with the same id.
func (t Template) withBuild(build Build, tags []string, now time.Time) Template {
	t.Builds = byAge.Put(slices.Clone(t.Builds), build)
	t.Tags = maps.Clone(t.Tags)
	if t.Tags == nil {
		t.Tags = map[string]Tag{}
	}
	for _, tag := range tags {
		t.Tags[tag] = Tag{build.ID, now}
	}
	return t.tidy(now)
}

// withoutTags returns the template without the given tags.
func (t Template) withoutTags(tags []string, now time.Time) Template {
	t.Tags = maps.Clone(t.Tags)
	for _, tag := range tags {
		delete(t.Tags, tag)
	}
	return t.tidy(now)
}

// maxFailed is the number of failed builds that a template keeps.
const maxFailed = 10

// tidy returns a copy of the template without the ready builds that have no tag, and without the
// oldest failed builds, so that at most maxFailed of them remain.
func (t Template) tidy(now time.Time) Template {
	named := map[string]bool{}
	for _, tag := range t.Tags {
		named[tag.Build] = true
	}
	failed := 0
	var kept []Build
	for _, b := range slices.Backward(t.Builds) {
		if b.Status == Failed {
			failed++
		}
		if named[b.ID] || b.pending() || b.Status == Failed && failed <= maxFailed {
			kept = append(kept, b)
		}
	}
	slices.Reverse(kept)
	t.Builds, t.UpdatedAt = kept, now
	return t
}

// layers returns the layers of all builds. It may contain duplicates.
func (t *Template) layers() []string {
	var all []string
	for _, b := range t.Builds {
		all = append(all, b.Layers...)
	}
	return all
}

// builtInTemplate returns a built-in template with one build.
func builtInTemplate(id, name, description, build string, content Content) Template {
	now := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC) // the same in each list, even after a restart
	t := Template{ID: id, Name: name, Description: description, BuiltIn: true, Public: true, CreatedAt: now}
	return t.withBuild(Build{ID: build, CreatedAt: now, Status: Ready, FinishedAt: now, Content: content}, []string{DefaultTag}, now)
}

// Image is a built-in template whose sandboxes have an image that the engine itself fetches.
type Image struct{ Name, Reference string }

// template returns the template. All servers with the image give it the same ids.
func (i Image) template() Template {
	sum := sha256.Sum256([]byte("image template " + i.Name))
	id := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:idLength]
	build := uuidOf([16]byte(sum[len(sum)-16:]))
	return builtInTemplate(id, i.Name, "The image "+i.Reference, build, Content{Image: &engine.Image{Reference: i.Reference}})
}

// builtIn returns the built-in templates: base and code-interpreter-v1, which E2B's service also
// has, and a version of both for each engine, such as base-docker. All of them include the
// interpreter. As on the service, all processes of code-interpreter-v1 begin in the home directory
// of the user called user, and each process of base begins in the home directory of its own user.
func builtIn() []Template {
	made := func(id, name string, build int, by engine.Name, workdir string) Template {
		description := "What every sandbox of this cloud has, to run commands and code"
		if by != "" {
			description += ", on the engine " + string(by)
		}
		return builtInTemplate(id, name, description, fmt.Sprintf("00000000-0000-4000-8000-%012d", build), Content{Engine: by, Workdir: workdir})
	}
	all := []Template{
		made("localbasetemplate000", "base", 1, "", ""),
		made("localcodeinterpreter", "code-interpreter-v1", 2, "", guest.UserWorkdir),
	}
	for i, name := range engine.Names {
		id := func(prefix string) string {
			return prefix + string(name) + strings.Repeat("0", idLength-len(prefix)-len(name))
		}
		all = append(all,
			made(id("localbase"), "base-"+string(name), 3+2*i, name, ""),
			made(id("localcode"), "code-interpreter-v1-"+string(name), 4+2*i, name, guest.UserWorkdir))
	}
	return all
}

// variant reports whether the template is a built-in template for a single engine. Clients can use
// such a template by its name, but lists do not contain it. The reason is that the cloud does not
// check whether this machine has the engine before the template is used.
func (t *Template) variant() bool { return t.BuiltIn && t.Latest().Engine != "" }

const idLength = 20

func newID() string { return strings.ToLower(rand.Text())[:idLength] }

// newUUID returns a random UUID, for the id of a build. Clients expect a UUID.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return uuidOf(b)
}

func uuidOf(b [16]byte) string {
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
