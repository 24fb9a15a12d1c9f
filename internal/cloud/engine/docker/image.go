package docker

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/client"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// image returns the daemon's name of a sandbox's image. The image of a template was loaded when the
// template was built. If the daemon no longer has the image of the template, image returns an error
// and uses no other image. If the daemon does not have the default image yet, image pulls it.
// Several sandboxes wait for the same pull.
func (e *Engine) image(ctx context.Context, asked *engine.Image) (string, error) {
	if asked != nil {
		return e.loaded(ctx, asked)
	}
	named, err := reference.ParseNormalizedNamed(e.options.Image)
	if err != nil {
		return "", fmt.Errorf("the image %q: %w", e.options.Image, err)
	}
	ref := reference.FamiliarString(reference.TagNameOnly(named))
	_, err = e.client.ImageInspect(ctx, ref)
	if err == nil || !errdefs.IsNotFound(err) {
		return ref, err
	}
	pulled := e.images.DoChan(ref, func() (any, error) { return nil, e.pull(e.life, ref) })
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("pull the image %s: %w", ref, context.Cause(ctx))
	case result := <-pulled:
		if result.Err != nil {
			return "", fmt.Errorf("the daemon does not have the image %s and cannot pull it: %w; pull it with `docker pull %s`, which has your credentials, or name another image", ref, result.Err, ref)
		}
		return ref, nil
	}
}

// DefaultImage returns the id of the default image, and pulls the image if needed. The id stays
// valid even if the image's name later refers to another image.
func (e *Engine) DefaultImage(ctx context.Context) (string, error) {
	ref, err := e.image(ctx, nil)
	if err != nil {
		return "", fmt.Errorf("docker: %w", err)
	}
	found, err := e.client.ImageInspect(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("docker: the image %s: %w", ref, err)
	}
	return found.ID, nil
}

// progressEvery is the shortest time between two reports of the progress of a pull in the log.
const progressEvery = 5 * time.Second

func (e *Engine) pull(ctx context.Context, ref string) error {
	logger := e.options.Logger.With("image", ref)
	logger.InfoContext(ctx, "pulling an image")
	progress, err := e.client.ImagePull(ctx, ref, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer progress.Close()
	type layer struct{ done, total int64 }
	layers := map[string]layer{}
	told := time.Now()
	for m, err := range progress.JSONMessages(ctx) {
		if err != nil {
			return err
		}
		if m.Error != nil {
			return m.Error
		}
		if m.Progress != nil && m.Progress.Total > 0 {
			layers[m.ID] = layer{m.Progress.Current, m.Progress.Total}
		}
		if time.Since(told) > progressEvery {
			told = time.Now()
			var sum layer
			for _, l := range layers {
				sum.done, sum.total = sum.done+l.done, sum.total+l.total
			}
			logger.InfoContext(ctx, "pulling an image", "bytes", sum.done, "of", sum.total)
		}
	}
	logger.InfoContext(ctx, "pulled an image")
	return nil
}
