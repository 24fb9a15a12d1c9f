package builds

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/envdclient"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

// Names of the steps without a number.
const (
	stepBase     = "base"
	stepFinalize = "finalize"
)

// run is a running build.
type run struct {
	*Builder
	job       *job
	template  templates.Template
	spec      Spec
	asked     engine.Name      // "": the build names no engine
	resources engine.Resources // requested for the template's sandboxes, and for those of its steps
	target    Target

	step   string            // the current step
	key    string            // cache key of state
	force  bool              // the remaining steps do not use the cache
	made   map[string]bool   // cache keys of the steps that this build ran; even with force, the build uses their results
	state  templates.Content // result of the steps so far; the run holds its layers
	inside *sandbox
	stages map[string]finished // finished stages, by name
}

// finished is a finished stage. The build holds the layers of the stage.
type finished struct {
	content templates.Content
	key     string // cache key of content
	forced  bool   // the stage ignored the cache, so steps that copy from the stage ignore it, too
}

// sandbox is a sandbox in which nothing has run yet, except possibly the current step.
type sandbox struct {
	Sandbox
	client *envdclient.Client
	base   layers.Base // layers that the sandbox began with
	user   string      // user of the sandbox; "": root
}

// wait waits until fewer than maxRunning builds run, and then counts this build as running. If
// ctx ends first, wait returns the cause of that end.
func (r *run) wait(ctx context.Context) error {
	r.step = stepBase
	select {
	case r.slots <- struct{}{}:
		return nil
	default:
	}
	r.job.log.add(slog.LevelInfo, stepBase, fmt.Sprintf("Waiting for other builds: %d run at once", maxRunning))
	select {
	case r.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *run) runAll(ctx context.Context) error {
	defer func() { <-r.slots }()
	for _, stage := range r.spec.Stages {
		if err := r.chain(ctx, stage.Name, Spec{FromImage: stage.FromImage}, stage.Steps); err != nil {
			return err
		}
		r.closeSandbox()
		r.stages[stage.Name] = finished{r.take(), r.key, r.force}
	}
	if err := r.chain(ctx, "", r.spec, r.spec.Steps); err != nil {
		return err
	}
	r.step = stepFinalize
	return r.finalize(ctx)
}

// chain runs steps one after the other. stage is the name of their stage; "": the template
// itself.
func (r *run) chain(ctx context.Context, stage string, from Spec, steps []Step) error {
	called, prefix := "builder", ""
	if stage != "" {
		called, prefix = stage, stage+"/"
	}
	r.step, r.force = prefix+stepBase, r.spec.Force
	if err := r.base(ctx, from); err != nil {
		return err
	}
	for i, step := range steps {
		r.step = prefix + strconv.Itoa(i+1)
		ctx, cancel := context.WithTimeoutCause(ctx, stepDeadline, fmt.Errorf("not done within %v, which is the limit of a step", stepDeadline))
		err := r.runStep(ctx, fmt.Sprintf("[%s %d/%d]", clip.Text(called, maxRepeated), i+1, len(steps)), step)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// runStep runs one step, or takes its result from the cache.
func (r *run) runStep(ctx context.Context, called string, step Step) error {
	kind := strings.ToUpper(strings.TrimSpace(step.Type))
	if step.FromStage == "" {
		r.key = key(r.key, kind, step.Args, step.FilesHash)
	} else {
		r.key = key(r.key, kind, step.Args, "from", r.stages[step.FromStage].key)
	}
	r.force = r.force || step.Force || r.stages[step.FromStage].forced
	line := fmt.Sprintf("%s %s %s%s [%s]", called, clip.Text(kind, maxRepeated), step.fromFlag(), clip.Text(strings.Join(step.Args, " "), maxLine/2), r.key)
	if cached, ok := r.cached(); ok {
		r.job.log.add(slog.LevelInfo, r.step, "CACHED "+line)
		r.become(cached)
		return nil
	}
	r.job.log.add(slog.LevelInfo, r.step, line)
	do, known := kinds[kind]
	if !known {
		return fmt.Errorf("unknown type of step '%s': it must be COPY, ADD, RUN, USER, WORKDIR, ENV or ARG", clip.Text(step.Type, maxRepeated))
	}
	r.state.Envs = maps.Clone(r.state.Envs) // other results share the map
	changed, err := do(r, ctx, kind, step)
	if err != nil {
		if r.inside != nil && r.inside.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w: its sandbox ended: %w", err, r.inside.Err())
		}
		return cmp.Or(context.Cause(ctx), err)
	}
	if changed {
		if err := r.checkpoint(ctx); err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
	}
	r.remember()
	return nil
}

// remember stores the result of the step in the cache.
func (r *run) remember() {
	r.made[r.key] = true
	if err := r.options.Cache.put(r.key, r.state); err != nil {
		r.job.log.add(slog.LevelWarn, r.step, fmt.Sprintf("what the step led to cannot be kept in the cache: %v", err))
	}
}

// cached returns the result of the next step from the cache. It holds the layers of the result
// for the caller.
func (r *run) cached() (templates.Content, bool) {
	if r.force && !r.made[r.key] {
		return templates.Content{}, false
	}
	s, ok := r.options.Cache.get(r.key)
	if !ok {
		return templates.Content{}, false
	}
	base, err := r.options.Layers.Use(s.Layers...)
	if err != nil { // saved while sandboxes could share directories, which is no longer possible
		r.options.Layers.Release(s.Layers...)
		return templates.Content{}, false
	}
	base.Release()
	s.Start, s.Ready, s.Engine = r.state.Start, r.state.Ready, r.state.Engine
	return s, true
}

// become replaces the build's state by s, the cached result of a step. It takes over the caller's
// hold on the layers of s.
func (r *run) become(s templates.Content) {
	r.closeSandbox()
	r.options.Layers.Release(r.state.Layers...)
	r.state = s
}

// checkpoint saves the files of the step as a layer above the earlier layers.
func (r *run) checkpoint(ctx context.Context) error {
	if err := r.MakeRoom(ctx, 0); err != nil { // checked before the disk is full
		return err
	}
	top, err := r.options.Layers.Add(func(dir string, share bool) (bool, error) {
		return r.inside.Checkpoint(ctx, dir, "", share)
	})
	if err != nil {
		return fmt.Errorf("saving the files of the step: %w", err)
	}
	chain, err := r.options.Layers.Chain(ctx, r.inside.base.IDs, top)
	if err != nil {
		return fmt.Errorf("saving the files of the step: %w", err)
	}
	r.closeSandbox()
	if err := r.MakeRoom(ctx, 0); err != nil {
		r.options.Layers.Release(chain...)
		return err
	}
	r.options.Layers.Release(r.state.Layers...)
	r.state.Layers = chain
	return nil
}

// take returns the result of the steps. The caller takes over the layers of the result.
func (r *run) take() templates.Content {
	content := r.state
	r.state = templates.Content{}
	return content
}

// close ends the build's sandbox, and releases its layers.
func (r *run) close() {
	r.closeSandbox()
	r.options.Layers.Release(r.state.Layers...)
	for _, stage := range r.stages {
		r.options.Layers.Release(stage.content.Layers...)
	}
	r.state, r.stages = templates.Content{}, nil
}

// sandbox returns a sandbox for the step, with the layers made so far. Its envd runs as root.
func (r *run) sandbox(ctx context.Context) (*sandbox, error) { return r.sandboxFor(ctx, "") }

// sandboxFor returns a sandbox for the step. If sandboxes have only one user, that user is the
// argument user; otherwise the argument is ignored.
func (r *run) sandboxFor(ctx context.Context, user string) (*sandbox, error) {
	if !r.target.Chosen || r.state.Image == nil || user == "root" || user == "user" {
		user = ""
	}
	if r.inside != nil && r.inside.user != user { // nothing has run in the sandbox yet
		r.closeSandbox()
	}
	if r.inside != nil {
		return r.inside, nil
	}
	var err error
	r.inside, err = r.launch(ctx, r.state, user)
	return r.inside, err
}

// launch starts a sandbox that begins with content. If sandboxes have only one user, that user is
// the argument user; otherwise the argument is ignored.
func (r *run) launch(ctx context.Context, content templates.Content, user string) (*sandbox, error) {
	egress, err := network.ParseRules(true, nil, nil)
	if err != nil {
		return nil, err
	}
	token := rand.Text()
	spec := lifecycle.Spec{
		ID:          "i" + strings.ToLower(rand.Text())[:20],
		Template:    lifecycle.Template{ID: r.template.ID, Alias: r.template.Name, Engine: content.Engine, Image: content.Image, User: user, Resources: r.resources},
		AccessToken: token, TrafficToken: rand.Text(), Egress: egress,
	}
	if content.Image != nil { // processes get the image's variables; envd does not
		spec.Envs, spec.Template.Workdir = content.Envs, content.Workdir
	}
	base, err := r.options.Layers.Use(content.Layers...)
	if err != nil {
		return nil, err
	}
	spec.Layers, spec.Files = base.Layers, base.Files
	started, err := r.options.Launch(ctx, spec)
	if err != nil {
		base.Release()
		return nil, fmt.Errorf("starting a sandbox for the step: %w", err)
	}
	return &sandbox{started, envdclient.New(started.Dial, token), base, user}, nil
}

func (r *run) closeSandbox() {
	if r.inside != nil {
		r.end(r.inside)
		r.inside = nil
	}
}

// end ends a sandbox and logs a failure.
func (r *run) end(s *sandbox) {
	s.client.Close()
	if err := s.Close(); err != nil {
		r.options.Logger.WarnContext(context.Background(), "the sandbox of a build", "build", r.job.id, "error", err)
	}
	s.base.Release()
}

// user returns the user of the next process, and the home directory of this user.
func (r *run) user() (name, home string) {
	name = cmp.Or(r.state.User, "user")
	return name, cmp.Or(r.state.Home, map[string]string{"root": "/root"}[name], "/home/"+name)
}

// command runs a command in the sandbox, and logs the output.
func (r *run) command(ctx context.Context, c envdclient.Command) error {
	inside, err := r.sandboxFor(ctx, c.User)
	if err != nil {
		return err
	}
	stdout, stderr := r.lines(slog.LevelInfo), r.lines(slog.LevelWarn)
	if c.Stdout == nil {
		c.Stdout = stdout
	}
	c.Stderr = stderr
	err = inside.client.Run(ctx, c)
	stdout.close()
	stderr.close()
	if _, failed := errors.AsType[*envdclient.ExitError](err); failed && stderr.last != "" {
		return fmt.Errorf("%w: %s", err, clip.Line(stderr.last, maxRepeated))
	}
	if refused, ok := errors.AsType[*envdclient.RefusedError](err); ok { // the same words as the service's
		return fmt.Errorf("command failed: %v: %w", refused.Code, err)
	}
	return err
}

func (r *run) lines(level slog.Level) *lines {
	return &lines{log: r.job.log, level: level, step: r.step}
}

// finalize runs the start and the ready command of the template once. It skips them if they
// succeeded before with the same files.
func (r *run) finalize(ctx context.Context) error {
	ready := r.state.Ready
	if r.state.Start == "" && ready == "" {
		return nil
	}
	if ready == "" {
		ready = "sleep 20"
	}
	r.key = key(r.key, stepFinalize, r.state.Start, ready)
	if cached, ok := r.cached(); ok {
		r.job.log.add(slog.LevelInfo, stepFinalize, fmt.Sprintf("CACHED [finalize] ready: %s [%s]", clip.Text(ready, maxLine/2), r.key))
		r.become(cached)
		return nil
	}
	if r.state.Start != "" {
		r.job.log.add(slog.LevelInfo, stepFinalize, "Running start command: "+r.state.Start)
	}
	name, _ := r.user()
	inside, err := r.sandboxFor(ctx, name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if r.state.Start == "" {
			return
		}
		err := r.command(ctx, r.inTemplate(envdclient.Shell(r.state.Start)))
		switch { // after the ready command succeeded, cancel has no effect
		case err != nil:
			cancel(fmt.Errorf("the start command failed: %w", err))
		case envdclient.OnlySleeps(ready):
			cancel(errStartEnded)
		}
	}()
	err = r.waitReady(ctx, inside, ready)
	if errors.Is(err, errStartEnded) {
		r.job.log.add(slog.LevelInfo, stepFinalize, "Template is ready: its start command has ended, and nothing else is waited for")
		err = nil
	}
	cancel(errFinalized)
	<-ended
	r.closeSandbox() // discards the files of the commands, which every sandbox writes anew
	if err == nil {
		r.remember()
	}
	return err
}

// Reasons why finalize ends its commands.
var (
	errFinalized  = errors.New("the template is ready")
	errStartEnded = errors.New("the start command has ended")
)

// waitReady repeats the ready command until it succeeds.
func (r *run) waitReady(ctx context.Context, inside *sandbox, ready string) error {
	r.job.log.add(slog.LevelInfo, stepFinalize, "Waiting for template to be ready: "+ready)
	ctx, cancel := context.WithTimeoutCause(ctx, readyDeadline, fmt.Errorf("the ready command did not succeed within %v: %s", readyDeadline, clip.Text(ready, maxRepeated)))
	defer cancel()
	for interval := minReadyInterval; ; interval = min(2*interval, maxReadyInterval) {
		c := r.inTemplate(envdclient.Check(ready))
		output := r.lines(slog.LevelDebug)
		c.Stdout, c.Stderr = output, output
		err := inside.client.Run(ctx, c)
		output.close()
		if _, failed := errors.AsType[*envdclient.ExitError](err); !failed {
			if err == nil {
				r.job.log.add(slog.LevelInfo, stepFinalize, "Template is ready")
			}
			return cmp.Or(context.Cause(ctx), err)
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// inTemplate returns the command c with the user, the working directory and the variables of
// the template.
func (r *run) inTemplate(c envdclient.Command) envdclient.Command {
	name, home := r.user()
	c.User, c.Dir = name, cmp.Or(r.state.Workdir, home)
	envs := make(map[string]string)
	maps.Copy(envs, r.state.Envs)
	maps.Copy(envs, c.Envs)
	c.Envs = envs
	return c
}
