package builds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

const (
	// lookUpAfter is the time after which a registry is asked again for the image of a tag.
	// lookUpPause is the time to the next question if the registry did not answer.
	lookUpAfter = time.Hour
	lookUpPause = time.Minute
	// fetchDeadline bounds the time of one fetch.
	fetchDeadline = time.Hour
)

// ErrFetches means that [MaxActive] images are being fetched for sandboxes.
var ErrFetches = errors.New("builds: too many images are fetched at once")

// FetchError reports that the image of a sandbox could not be fetched.
type FetchError struct {
	// Status is the HTTP status of the registry's refusal; 0 if the registry refused nothing.
	Status int
	Err    error
}

func (e *FetchError) Error() string { return e.Err.Error() }

func (e *FetchError) Unwrap() error { return e.Err }

// NoImagesError reports that the sandboxes of an engine cannot begin with an image. errors.Is matches
// it with [errors.ErrUnsupported].
type NoImagesError struct {
	Image  string
	Engine engine.Name
	Why    string
}

func (e *NoImagesError) Error() string {
	other := engine.Docker
	if e.Engine == engine.Docker {
		other = engine.Room
	}
	return fmt.Sprintf("the image '%s': sandboxes of the engine %s of this local cloud cannot begin with an image: %s; to choose an engine that can, name a template such as base-%s, too",
		clip.Text(e.Image, maxRepeated), e.Engine, e.Why, other)
}

// Is reports whether target is [errors.ErrUnsupported].
func (e *NoImagesError) Is(target error) bool { return target == errors.ErrUnsupported }

// fetch is the fetch of an image for sandboxes. Requests for the same image wait for one fetch,
// which continues if they give up.
type fetch struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the fetch has ended
	err    error         // valid once done is closed
}

// BuiltIn returns the built-in template that replaces an image.
func BuiltIn(reference string) (template string, ok bool) { return builtIn(reference) }

// FromImage returns the content of sandboxes that begin with a container image, without a
// template. name is the sandboxes' engine; "" means [Options].Engine. The caller must release the
// content with [Builder.Release].
//
// The first call fetches the image. Later calls use it without a request to the registry. A tag is
// looked up again after an hour, and a file of this machine each time. If the registry does not answer
// then, FromImage uses the image to which the tag last pointed. If ctx ends first, the fetch continues
// for the next call.
//
// The error is a [*NoImagesError] if the engine cannot use images, [ErrFetches] if too many images are
// being fetched, and a [*FetchError] for a failed fetch.
func (b *Builder) FromImage(ctx context.Context, name engine.Name, reference string) (templates.Content, error) {
	reference = strings.TrimSpace(reference)
	if name == "" {
		name = b.options.Engine
	}
	target, err := b.anyTarget(ctx, name)
	switch {
	case err != nil:
		return templates.Content{}, err
	case target.ByReference:
		return templates.Content{Engine: name, Image: &engine.Image{Reference: reference}}, nil
	case target.Images == nil:
		return templates.Content{}, &NoImagesError{Image: reference, Engine: name, Why: cmp.Or(target.NoImages, target.Refusal)}
	}
	key := key("sandbox", "image", reference, string(name), target.Machine)
	if content, ok := b.kept(ctx, target, key, newestOf(reference)); ok {
		return content, nil
	}
	err = b.fetched(ctx, key, func(ctx context.Context) error { return b.fetch(ctx, name, target, key, reference) })
	if err != nil {
		return templates.Content{}, err
	}
	content, ok := b.kept(ctx, target, key, time.Time{})
	if !ok {
		err = fmt.Errorf("the image '%s' was removed just after it was fetched, to make room: try again", clip.Text(reference, maxRepeated))
	}
	return content, err
}

// anyTarget is like target, without the error for an engine that has no builds.
func (b *Builder) anyTarget(ctx context.Context, name engine.Name) (Target, error) {
	if b.options.Target == nil {
		return Target{}, nil
	}
	return b.options.Target(ctx, name)
}

// Release releases the layers of a content that FromImage returned.
func (b *Builder) Release(content templates.Content) { b.options.Layers.Release(content.Layers...) }

// newestOf returns the earliest time at which a usable image of a reference may have been looked up. A tag
// may point to another image after an hour, and a file of this machine may change at any time. A digest
// always means the same image.
func newestOf(reference string) time.Time {
	switch {
	case image.IsFile(reference):
		return time.Now()
	case strings.Contains(reference, "@"):
		return time.Time{}
	}
	return time.Now().Add(-lookUpAfter)
}

// kept returns the content of an image from the cache, if it was looked up at or after a time.
func (b *Builder) kept(ctx context.Context, target Target, key string, since time.Time) (templates.Content, bool) {
	content, ok := b.options.Cache.getNewer(key, since)
	if !ok {
		return templates.Content{}, false
	}
	if target.Has != nil {
		if has, err := target.Has(ctx, content.Image.Digest); err != nil || !has {
			b.options.Layers.Release(content.Layers...)
			return templates.Content{}, false
		}
	}
	return content, true
}

// fetched waits for the fetch with a key. If there is none, fetched starts it with do.
func (b *Builder) fetched(ctx context.Context, key string, do func(ctx context.Context) error) error {
	b.mu.Lock()
	f := b.fetches[key]
	switch {
	case b.closed:
		b.mu.Unlock()
		return ErrClosed
	case f == nil && len(b.fetches) >= MaxActive:
		b.mu.Unlock()
		return ErrFetches
	case f == nil:
		life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		f = &fetch{cancel: cancel, done: make(chan struct{})}
		b.fetches[key] = f
		b.work.Go(func() {
			defer cancel(nil)
			life, end := context.WithTimeoutCause(life, fetchDeadline, fmt.Errorf("not fetched within %v", fetchDeadline))
			defer end()
			f.err = do(life)
			b.mu.Lock()
			delete(b.fetches, key)
			b.mu.Unlock()
			close(f.done)
		})
	}
	b.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fetch fetches an image and stores its content in the cache.
func (b *Builder) fetch(ctx context.Context, name engine.Name, target Target, key, reference string) error {
	logger := b.options.Logger.With("image", clip.Text(reference, maxRepeated))
	warn := func(line string) { logger.WarnContext(ctx, line) }
	now := time.Now()
	pulled, err := target.Images.Pull(ctx, reference, nil, func(line string) { logger.DebugContext(ctx, line) })
	if err != nil {
		return b.fetchFailed(ctx, logger, key, err)
	}
	content := contentOf(name, reference, pulled, warn)
	defer b.options.Layers.Release(content.Layers...)
	if err := checkSize(content.Envs); err != nil {
		return &FetchError{Status: http.StatusBadRequest, Err: fmt.Errorf("the image '%s': %w", clip.Text(reference, maxRepeated), err)}
	}
	if err := b.options.Cache.putLookedUp(key, content, now); err != nil {
		return err
	}
	return b.trimImages(ctx, key)
}

// fetchFailed returns the error of a fetch. It returns nil if the registry did not answer, and the
// cache has the image to which the tag pointed before.
func (b *Builder) fetchFailed(ctx context.Context, logger *slog.Logger, key string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	before, ok := b.options.Cache.get(key)
	defer b.options.Layers.Release(before.Layers...)
	if ok && unanswered(err) {
		logger.WarnContext(ctx, "the registry does not answer: sandboxes begin with the image that the tag pointed to before", "digest", before.Image.Digest, "error", err)
		return b.options.Cache.putLookedUp(key, before, time.Now().Add(lookUpPause-lookUpAfter))
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return &FetchError{Status: image.StatusOf(err), Err: err}
}

// unanswered reports whether an error of a fetch means that the registry did not answer, or cannot
// answer now.
func unanswered(err error) bool {
	if _, failed := errors.AsType[net.Error](err); failed || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	status := image.StatusOf(err)
	return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}
