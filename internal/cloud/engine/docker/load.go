package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Labels of images of templates. The images that are removed with their server also have
// labelServer.
const (
	labelStore = "e2bctl.store" // the store that owns the image
	labelImage = "e2bctl.image" // the image's digest in the registry
)

// repository is the name of the repository of images of templates in the daemon. No registry has this
// repository.
const repository = "localhost/e2bctl-image"

// Name returns the name and the labels that an image of a template must have in the daemon.
func (e *Engine) Name(digest string) (tag string, labels map[string]string) {
	labels = map[string]string{labelStore: e.options.Store, labelImage: digest}
	if e.options.Passes {
		labels[labelServer] = self()
	}
	_, hex, _ := strings.Cut(digest, ":")
	return repository + ":" + strings.ToLower(e.options.Store) + "-" + hex, labels
}

// Has reports whether the daemon has an image of a template.
func (e *Engine) Has(ctx context.Context, digest string) (bool, error) {
	tag, _ := e.Name(digest)
	_, err := e.client.ImageInspect(ctx, tag)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask the daemon at %s for the image: %w", e.host, err)
	}
	return true, nil
}

// Load puts an image of a template into the daemon. archive has the format of docker save, with the
// name and labels that [Engine.Name] returns.
func (e *Engine) Load(ctx context.Context, digest string, archive io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.life, func() { cancel(engine.ErrClosed) })()
	e.gave.Store(true)
	err := e.load(ctx, archive)
	if err == nil {
		var has bool
		if has, err = e.Has(ctx, digest); err == nil && !has {
			err = errors.New("it accepted the image, but does not have it")
		}
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("load the image into the daemon at %s: %w", e.host, err)
	}
	return nil
}

func (e *Engine) load(ctx context.Context, archive io.Reader) error {
	answer, err := e.client.ImageLoad(ctx, archive, client.ImageLoadWithQuiet(true))
	if err != nil {
		return err
	}
	defer answer.Close()
	for messages := json.NewDecoder(answer); ; {
		var m jsonstream.Message
		err := messages.Decode(&m)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("its answer: %w", err)
		case m.Error != nil:
			return m.Error
		}
	}
}

// loaded returns the daemon's name of a template's image.
func (e *Engine) loaded(ctx context.Context, asked *engine.Image) (string, error) {
	has, err := e.Has(ctx, asked.Digest)
	if err == nil && !has {
		err = fmt.Errorf("the daemon at %s does not have the image %.300s (%s) of the template, or no longer: build the template again", e.host, asked.Reference, asked.Digest)
	}
	tag, _ := e.Name(asked.Digest)
	return tag, err
}

// RemoveImages removes the images of templates for which needed returns false.
func (e *Engine) RemoveImages(ctx context.Context, needed func(digest string) bool) error {
	return e.removeImages(ctx, labelStore+"="+e.options.Store, func(labels map[string]string) bool { return needed(labels[labelImage]) })
}

// sweepImages removes those images that are to be removed with their server, if that server has
// ended.
func (e *Engine) sweepImages(ctx context.Context) error {
	return e.removeImages(ctx, labelServer, func(labels map[string]string) bool { return !isDead(labels[labelServer]) })
}

// removeImages removes the names that this package gave to the images with a label. If stays returns
// true for the labels of an image, the image keeps these names. The daemon keeps an image as long as
// a container, another image, or a name from somebody else refers to it.
func (e *Engine) removeImages(ctx context.Context, label string, stays func(labels map[string]string) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, removeTimeout, fmt.Errorf("not done within %v", removeTimeout))
	defer cancel()
	all, err := e.client.ImageList(ctx, client.ImageListOptions{Filters: make(client.Filters).Add("label", label)})
	if err != nil {
		return err
	}
	var errs []error
	for _, i := range all.Items {
		for _, tag := range i.RepoTags {
			if !strings.HasPrefix(tag, repository+":") || stays(i.Labels) {
				continue
			}
			e.options.Logger.DebugContext(ctx, "removing an image that is no longer needed", "image", tag)
			_, err := e.client.ImageRemove(ctx, tag, client.ImageRemoveOptions{PruneChildren: true})
			if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
				errs = append(errs, fmt.Errorf("remove the image %s: %w", tag, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Architecture returns the architecture of the daemon's machine, in Go's naming.
func (e *Engine) Architecture() string { return cmp.Or(goName(e.info.Architecture), runtime.GOARCH) }
