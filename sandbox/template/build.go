package template

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/api"
)

// BuildParams sets how to build. The zero value uses the service's defaults, and copies from
// the working directory.
type BuildParams struct {
	// Tags are the tags of the build, in addition to a tag in the name; none means "default".
	Tags []string
	// CPUs and MemoryBytes are the resources of each sandbox; 0 means the service's default.
	// MemoryBytes is rounded up to whole MiB. A local cloud lowers them to its bounds, with a note in
	// the log of the build. Exactly 2 CPUs with 1 GiB mean the defaults of a local cloud.
	CPUs        int
	MemoryBytes int64
	// MinFreeDiskBytes is the least free disk space of a sandbox after the build; nil means
	// the service's default.
	MinFreeDiskBytes *int64
	// Engine is the engine of a local cloud that runs the build and the template's sandboxes: "room",
	// "docker" or "gvisor". The template keeps this engine. Empty means the engine of the template
	// that the build begins with, or the cloud's default engine if the build does not begin with a
	// template. With another service, setting Engine returns [errors.ErrUnsupported].
	Engine api.Engine
	// NoCache runs all steps even if their results are cached.
	NoCache bool
	// Dir is the source directory of [Definition.Copy]; empty means the working directory.
	Dir string
	// IgnoreFile is the file to read instead of the file .dockerignore in Dir. Empty means that
	// .dockerignore is read if it exists.
	IgnoreFile string
	// Ignore lists patterns of files not to copy, in the syntax of .dockerignore. They apply after the
	// patterns of the ignore file.
	Ignore []string
	// Log receives entries about the uploads and then the log of the build as it arrives, without the
	// control sequences of terminals. It is called by one goroutine at a time. Log may be nil.
	Log func(api.BuildLogEntry)
}

// Built identifies a build.
type Built struct {
	TemplateID string
	BuildID    string
	// Name is the name that was passed to Build; sandbox.WithTemplate accepts it.
	Name string
	// Names are the template's names with the team in front.
	Names []string
	// Tags are the tags that refer to the build as soon as it is ready.
	Tags []string

	steps  []step
	stages []stage
}

// Build builds a template and waits until it is ready. It uploads the files to copy that the
// service does not have.
//
// The name is "name" or "name:tag"; an existing template gets a new build. If a step fails, the
// error is a [*BuildError]. Services cannot stop a build: if ctx ends while it runs, the build
// continues. Build then returns both the build and an error, and [Wait] can wait for the build.
// Build also returns both if the request that starts the build gets no answer, because the build
// may run. Any other error comes from [api.TemplateService] or from reading the files; no build was
// started then.
func Build(ctx context.Context, templates *api.TemplateService, name string, d Definition, p *BuildParams) (*Built, error) {
	built, err := Start(ctx, templates, name, d, p)
	if err != nil {
		return built, err
	}
	params := &WaitParams{}
	if p != nil {
		params.Log = p.Log
	}
	return built, Wait(ctx, templates, built, params)
}

// Start is like [Build], but does not wait: it returns when the files are uploaded and the
// build runs.
func Start(ctx context.Context, templates *api.TemplateService, name string, d Definition, p *BuildParams) (*Built, error) {
	if p == nil {
		p = &BuildParams{}
	}
	built, err := start(ctx, templates, name, d, p)
	if err != nil {
		return built, fmt.Errorf("template: build %q: %w", name, err)
	}
	return built, nil
}

func start(ctx context.Context, templates *api.TemplateService, name string, d Definition, p *BuildParams) (*Built, error) {
	if d.err != nil {
		return nil, d.err
	}
	if name == "" {
		return nil, fmt.Errorf("the name is empty: %w", api.ErrInvalidArgument)
	}
	say := sayTo(p.Log)
	for _, warning := range d.warnings {
		say(api.BuildLogWarn, warning)
	}
	// Read the files first, so that an error in them is found before any request.
	files, err := prepare(ctx, d, p)
	if err != nil {
		return nil, err
	}
	defer files.close()
	for _, notice := range files.notices() {
		say(api.BuildLogWarn, notice)
	}
	if err := checkPlatforms(ctx, templates, d.platforms); err != nil {
		return nil, err
	}
	if len(d.stages) > 0 {
		if err := templates.CheckStages(ctx); err != nil {
			return nil, err
		}
	}
	build, err := templates.Create(ctx, name, &api.TemplateCreateParams{
		Tags: p.Tags, CPUs: p.CPUs, MemoryBytes: p.MemoryBytes, MinFreeDiskBytes: p.MinFreeDiskBytes, Engine: p.Engine,
	})
	if err != nil {
		return nil, err
	}
	say(api.BuildLogInfo, fmt.Sprintf("template %s, build %s", build.TemplateID, build.BuildID))
	if err := files.upload(ctx, templates, build.TemplateID, say); err != nil {
		return nil, err
	}
	request := &api.StartBuildParams{
		FromImage: d.image, FromTemplate: d.template, Registry: d.registry, Force: p.NoCache,
		StartCommand: d.start, ReadyCommand: string(d.ready), Steps: wire(files.steps),
	}
	if d.template == "" {
		request.FromImage = cmp.Or(d.image, baseImage)
	}
	for _, s := range files.stages {
		request.Stages = append(request.Stages, api.BuildStage{Name: s.name, FromImage: s.image, Steps: wire(s.steps)})
	}
	built := &Built{
		TemplateID: build.TemplateID, BuildID: build.BuildID, Name: name, Names: build.Names, Tags: build.Tags, steps: files.steps, stages: files.stages,
	}
	err = templates.StartBuild(ctx, build.TemplateID, build.BuildID, request)
	if answer, ok := errors.AsType[*api.Error](err); ok && answer.StatusCode == 0 {
		return built, fmt.Errorf("build %s of template %s may run all the same: %w", build.BuildID, build.TemplateID, err)
	}
	if err != nil {
		return nil, err
	}
	return built, nil
}

// wire converts steps to the types of package api.
func wire(steps []step) []api.BuildStep {
	sent := make([]api.BuildStep, len(steps))
	for i, s := range steps {
		sent[i] = s.BuildStep
	}
	return sent
}

// sayTo returns a function with which this package adds a line to the log of a build. Any goroutine
// may call the function.
func sayTo(log func(api.BuildLogEntry)) func(api.BuildLogLevel, string) {
	var mu sync.Mutex
	return func(level api.BuildLogLevel, message string) {
		mu.Lock()
		defer mu.Unlock()
		if log != nil {
			log(api.BuildLogEntry{Time: time.Now(), Level: level, Message: message})
		}
	}
}

// prepared contains the steps of a build with the hashes of their files.
type prepared struct {
	source  *source // the source directory; nil: no step copies files
	stages  []stage
	steps   []step
	uploads []upload // the files to upload, one entry for each hash
}

// upload is a step with its files.
type upload struct {
	step

	files []file
}

func (p *prepared) close() {
	if p.source != nil {
		p.source.close()
	}
}

// notices lists the files that are not copied.
func (p *prepared) notices() []string {
	if p.source == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(p.source.notes))
}

func prepare(ctx context.Context, d Definition, p *BuildParams) (_ *prepared, err error) {
	made := &prepared{stages: slices.Clone(d.stages)}
	defer func() {
		if err != nil {
			made.close()
		}
	}()
	for i := range made.stages {
		if made.stages[i].steps, err = made.add(ctx, made.stages[i].steps, p); err != nil {
			return nil, err
		}
	}
	made.steps, err = made.add(ctx, d.steps, p)
	return made, err
}

// add returns steps with the hashes of their files.
func (p *prepared) add(ctx context.Context, steps []step, params *BuildParams) (hashed []step, err error) {
	for _, s := range steps {
		if s.copy == nil {
			hashed = append(hashed, s)
			continue
		}
		if p.source == nil {
			if p.source, err = openSource(cmp.Or(params.Dir, "."), params.IgnoreFile, params.Ignore); err != nil {
				return nil, err
			}
		}
		s, files, err := p.source.copied(s, steps)
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			continue
		}
		if files, err = p.source.resolve(files, s.copy.FollowLinks); err != nil {
			return nil, err
		}
		more := []step{s}
		if s.unpack {
			if more, err = p.source.unpacked(s, files); err != nil {
				return nil, s.copyLine.failed(err)
			}
		}
		if more[0].FilesHash, err = p.source.digest(ctx, more[0], files); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(p.uploads, func(u upload) bool { return u.FilesHash == more[0].FilesHash }) {
			p.uploads = append(p.uploads, upload{more[0], files})
		}
		hashed = append(hashed, more...)
	}
	return hashed, nil
}

// parallelUploads limits the concurrent uploads. Each archive is also a file on this machine's
// disk.
const parallelUploads = 4

// upload sends the archives that the service does not have.
func (p *prepared) upload(ctx context.Context, templates *api.TemplateService, templateID string, say func(api.BuildLogLevel, string)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelUploads)
	for _, u := range p.uploads {
		group.Go(func() error {
			sent, err := p.uploadOne(ctx, templates, templateID, u)
			switch {
			case err != nil:
				return fmt.Errorf("upload %q: %w", u.Args[0], err)
			case sent:
				say(api.BuildLogInfo, fmt.Sprintf("uploaded %q", u.Args[0]))
			default:
				say(api.BuildLogInfo, fmt.Sprintf("%q is there already", u.Args[0]))
			}
			return nil
		})
	}
	return group.Wait()
}

func (p *prepared) uploadOne(ctx context.Context, templates *api.TemplateService, templateID string, u upload) (sent bool, err error) {
	to, err := templates.FileUpload(ctx, templateID, u.FilesHash)
	if err != nil || to.Present && !u.copy.Upload {
		return false, err
	}
	archive, err := p.source.pack(ctx, u.files, !u.copy.Uncompressed)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	for attempt := 1; ; attempt++ {
		// Do not pass the file itself, because the transport closes its body.
		err = templates.Upload(ctx, to, io.NewSectionReader(archive, 0, archive.size), archive.size)
		if err == nil || attempt == maxUploads || !errors.Is(err, api.ErrRetryable) {
			return true, err
		}
		if err := pause(ctx, time.Duration(attempt)*time.Second); err != nil {
			return false, err
		}
	}
}

// maxUploads limits the attempts to send an archive.
const maxUploads = 3

// pause waits for d. It returns the cause of ctx's end if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// describe returns the step in one line.
func (s step) describe() string {
	words := slices.DeleteFunc(slices.Clone(s.Args), func(word string) bool { return word == "" })
	switch s.Type {
	case "RUN":
		words = s.Args[:1]
	case "ENV":
		words = nil
		for i := 0; i+1 < len(s.Args); i += 2 {
			words = append(words, s.Args[i]) // values may be secret
		}
	}
	if s.FromStage != "" {
		words = append([]string{"--from=" + s.FromStage}, words...)
	}
	return s.Type + " " + strings.Join(words, " ")
}
