package builds

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

// Images fetches container images. [image.Puller] implements it.
type Images interface {
	Pull(ctx context.Context, reference string, auth *image.Auth, progress func(line string)) (image.Image, error)
}

// base begins the build with the template or image that from names.
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

// parent begins the build with the template that has the name reference. from is the name of this
// template in the request, for errors.
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
	parts := []any{"base", build.ID, r.target.Machine}
	if t.BuiltIn && r.target.Base != nil {
		made, err := r.target.Base(ctx)
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		parts = append(parts, made)
	}
	build.Layers, _ = r.options.Layers.Split(build.Layers...) // leaves out saved memory: a build starts its own processes
	if _, err := r.options.Layers.Hold(build.Layers...); err != nil {
		return err
	}
	r.state = build.Content
	if r.state.Workdir == guest.UserWorkdir { // the state of a build has its path
		r.state.Workdir = guest.UserHome
	}
	r.key = key(parts...)
	r.job.log.add(slog.LevelInfo, r.step, fmt.Sprintf("[base] FROM %s [%s]", clip.Text(from, maxRepeated), r.key))
	if t.BuiltIn {
		r.job.log.add(slog.LevelInfo, r.step, fmt.Sprintf("%s is the built-in template %s of this local cloud: sandboxes see the programs of this machine", clip.Text(from, maxRepeated), t.Name))
	}
	return nil
}

// image begins with a container image.
func (r *run) image(ctx context.Context, from Spec) error {
	reference := strings.TrimSpace(from.FromImage)
	name := cmp.Or(r.asked, r.options.Engine)
	var err error
	if r.target, err = r.Builder.target(ctx, name); err != nil {
		return err
	}
	pulled, err := r.pull(ctx, reference, from.Auth)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	warn := func(line string) { r.job.log.add(slog.LevelWarn, r.step, line) }
	r.state = contentOf(name, reference, pulled, warn)
	r.key = key("base", "image", cmp.Or(pulled.Digest, reference), r.target.Machine)
	if err := checkSize(r.state.Envs); err != nil {
		return fmt.Errorf("the image '%s': %w", clip.Text(reference, maxRepeated), err)
	}
	r.job.log.add(slog.LevelInfo, r.step, fmt.Sprintf("[base] FROM %s %s [%s]", clip.Text(reference, maxRepeated), pulled.Digest, r.key))
	if words := slices.Concat(pulled.Config.Entrypoint, pulled.Config.Cmd); len(words) > 0 && r.step == stepBase && r.spec.Start == "" {
		r.job.log.add(slog.LevelInfo, r.step, fmt.Sprintf("the image's own command is run in no sandbox unless it is the start command: %s", clip.Text(strings.Join(words, " "), maxRepeated)))
	}
	return nil
}

// pull fetches an image, with the login in auth.
func (r *run) pull(ctx context.Context, reference string, auth *image.Auth) (image.Image, error) {
	switch {
	case r.target.Images == nil:
		return image.Image{}, &ImageError{reference, r.target.NoImages}
	case reference == image.Scratch && r.target.Unpack != nil:
		return r.empty(ctx)
	}
	say := func(line string) { r.job.log.output(slog.LevelInfo, r.step, line) }
	pulled, err := r.target.Images.Pull(ctx, reference, auth, say)
	if err != nil {
		err = fmt.Errorf("pulling the image '%s': %w", clip.Text(reference, maxRepeated), err)
	}
	return pulled, err
}

// empty returns an image with one empty layer.
func (r *run) empty(ctx context.Context) (image.Image, error) {
	id, err := r.options.Layers.Make(func(dir string) error {
		var nothing bytes.Buffer
		if err := tar.NewWriter(&nothing).Close(); err != nil {
			return err
		}
		return r.target.Unpack(ctx, nil, &nothing, dir)
	})
	return image.Image{Layers: []string{id}}, err
}

// contentOf returns the content of an image. warn receives a line for each part of the image's
// configuration that is left out.
func contentOf(name engine.Name, reference string, pulled image.Image, warn func(line string)) templates.Content {
	content := templates.Content{
		Layers: pulled.Layers, Engine: name, Image: &engine.Image{Reference: reference, Digest: pulled.Digest},
		Envs: map[string]string{}, User: pulled.Config.User, Workdir: pulled.Config.Workdir,
	}
	if content.User != "" && content.Workdir == "" {
		content.Workdir = "/"
	}
	for _, line := range pulled.Config.Env {
		name, value, _ := strings.Cut(line, "=")
		if !variableName().MatchString(name) || strings.Contains(value, "\x00") {
			warn(fmt.Sprintf("the image's variable %q is left out: no process can have it", clip.Text(name, maxRepeated)))
			continue
		}
		content.Envs[name] = value
	}
	return content
}

// CheckImage returns an [*ImageError] if the requested build cannot begin with the image
// reference.
func (b *Builder) CheckImage(ctx context.Context, build templates.Build, reference string) error {
	if _, ok := builtIn(reference); ok {
		return nil
	}
	t, err := b.target(ctx, cmp.Or(build.Engine, b.options.Engine))
	if err == nil && t.Images == nil {
		err = &ImageError{reference, t.NoImages}
	}
	return err
}
