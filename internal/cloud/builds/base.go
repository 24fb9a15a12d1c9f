package builds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

// Images fetches container images.
type Images interface {
	// Pull returns an image, whose layers the caller holds. progress is told what is going
	// on, in lines.
	Pull(ctx context.Context, reference string, login *Login, progress func(line string)) (Image, error)
}

// Login is how to log in where an image is; nil: as this machine's user does.
type Login struct{ Username, Password string }

// Image is a container image that was fetched.
type Image struct {
	Digest string   // of its manifest
	Layers []string // ids, lowest first
	Config ImageConfig
}

// ImageConfig is what an image says about the processes in it.
type ImageConfig struct {
	Env             []string // NAME=value
	User, Workdir   string
	Entrypoint, Cmd []string
}

// base begins with what the build is from.
func (r *run) base(ctx context.Context, from Spec) error {
	reference := from.FromTemplate
	if name, ok := builtIn(from.FromImage); ok {
		reference = name
	}
	var err error
	if reference == "" {
		err = r.image(ctx, from)
	} else {
		err = r.parent(ctx, cmp.Or(from.FromImage, reference), reference)
	}
	if err != nil {
		return err
	}
	if from.Start != "" || from.Ready != "" {
		r.state.Start, r.state.Ready = from.Start, from.Ready
	}
	return nil
}

// parent begins with a template, which the build calls from.
func (r *run) parent(ctx context.Context, from, reference string) error {
	t, build, err := r.options.Templates.Find(templates.ParseReference(reference))
	if err != nil {
		return err
	}
	if build.Engine != "" && r.asked != "" && r.asked != build.Engine {
		return fmt.Errorf("%s is of the engine %s, so a template from it cannot be of the engine %s", clip.Text(from, maxRepeated), build.Engine, r.asked)
	}
	build.Engine = cmp.Or(build.Engine, r.asked, r.options.Engine)
	if r.target, err = r.Builder.target(ctx, build.Engine); err != nil {
		return err
	}
	if _, err := r.options.Layers.Hold(build.Layers...); err != nil {
		return err
	}
	r.state = build.Content
	r.key = key("base", build.ID, r.target.Machine)
	r.job.log.add(slog.LevelInfo, r.step, fmt.Sprintf("[base] FROM %s [%s]", clip.Text(from, maxRepeated), r.key))
	if t.BuiltIn {
		r.job.log.add(slog.LevelInfo, r.step, fmt.Sprintf("%s is the built-in template %s of this local cloud: sandboxes see the programs of this machine", clip.Text(from, maxRepeated), t.Name))
	}
	return nil
}

// scratch is the image with nothing in it, which no registry has.
const scratch = "scratch"

// image begins with a container image.
func (r *run) image(ctx context.Context, from Spec) error {
	reference := strings.TrimSpace(from.FromImage)
	name := cmp.Or(r.asked, r.options.Engine)
	var err error
	if r.target, err = r.Builder.target(ctx, name); err != nil {
		return err
	}
	var image Image
	if reference != scratch {
		if err := r.CheckImage(reference); err != nil {
			return err
		}
		say := func(line string) { r.job.log.output(slog.LevelInfo, r.step, line) }
		if image, err = r.options.Images.Pull(ctx, reference, from.Login, say); err != nil {
			return cmp.Or(context.Cause(ctx), fmt.Errorf("pulling the image '%s': %w", clip.Text(reference, maxRepeated), err))
		}
	}
	envs := map[string]string{}
	for _, line := range image.Config.Env {
		name, value, _ := strings.Cut(line, "=")
		if !variableName().MatchString(name) || strings.Contains(value, "\x00") {
			r.job.log.add(slog.LevelWarn, r.step, fmt.Sprintf("the image's variable %q is left out: no process can have it", clip.Text(name, maxRepeated)))
			continue
		}
		envs[name] = value
	}
	r.state = templates.Content{
		Layers: image.Layers, Engine: name, Image: &engine.Image{Reference: reference, Digest: image.Digest},
		Envs: envs, User: image.Config.User, Workdir: image.Config.Workdir,
	}
	if r.state.User != "" && r.state.Workdir == "" {
		r.state.Workdir = "/"
	}
	r.key = key("base", "image", image.Digest, r.target.Machine)
	if err := checkSize(envs); err != nil {
		return fmt.Errorf("the image '%s': %w", clip.Text(reference, maxRepeated), err)
	}
	r.job.log.add(slog.LevelInfo, r.step, fmt.Sprintf("[base] FROM %s %s [%s]", clip.Text(reference, maxRepeated), image.Digest, r.key))
	if words := append(image.Config.Entrypoint, image.Config.Cmd...); len(words) > 0 && r.step == stepBase && r.spec.Start == "" {
		r.job.log.add(slog.LevelInfo, r.step, fmt.Sprintf("the image's own command is run in no sandbox unless it is the start command: %s", clip.Text(strings.Join(words, " "), maxRepeated)))
	}
	return nil
}

// CheckImage returns an [*ImageError] if an image is no built-in template, and there are no
// others.
func (b *Builder) CheckImage(image string) error {
	if _, ok := builtIn(image); ok || b.options.Images != nil {
		return nil
	}
	return &ImageError{image, cmp.Or(b.options.NoImages, errors.New("it has no images"))}
}
