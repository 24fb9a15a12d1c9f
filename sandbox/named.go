package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
)

// NameLabel is the key of the label that contains the name of a sandbox of [Client.GetOrCreate].
// List, Reap and `e2bctl ls -m` can filter by this label.
const NameLabel = "e2bctl.name"

// maxName limits the length of a sandbox's name, in bytes.
const maxName = 256

// GetOrCreate returns a handle of the sandbox with this name. It creates the sandbox if there is
// none. Use it to find the sandbox of a conversation, a user or a job again, from this program or
// another program. GetOrCreate resumes a paused sandbox. All opts apply to a new sandbox. To an
// existing sandbox, only those opts apply that are a [HandleOption]. If opts name a template or
// resources and the existing sandbox has others, the error is [api.ErrConflict]; [Client.Resize] can
// change the resources. [Info] has CPUs rounded up and sizes in MiB, so smaller differences are
// not noticed.
//
// The handle does not own the sandbox: Close leaves it running, and [Sandbox.Kill] ends it. At
// the end of its lifetime the sandbox is paused, unless [Expiry].Then sets another action. The
// lifetime is Expiry.After, 5 minutes by default.
//
// A name has 1 to 256 bytes of UTF-8. It is unique for the API key, across all clients with that
// key. On a local cloud, concurrent callers receive the same sandbox. Other services cannot
// guarantee that, so each concurrent caller may create a sandbox. Later calls return the oldest of
// these sandboxes, and the others stay until their lifetime ends. A fork of the sandbox has the
// same name. GetOrCreate returns the fork when the original has ended.
func (c *Client) GetOrCreate(ctx context.Context, name string, opts ...CreateOption) (*Sandbox, error) {
	cfg, err := configure(c, "GetOrCreate", opts)
	if err != nil {
		return nil, err
	}
	if name == "" || len(name) > maxName || !utf8.ValidString(name) {
		return nil, fmt.Errorf("sandbox: the name %q: want 1 to %d bytes of UTF-8: %w", clip.Text(name, 64), maxName, api.ErrInvalidArgument)
	}
	cfg.metadata, cfg.uniqueLabel = merge(cfg.metadata, map[string]string{NameLabel: name}), NameLabel
	if cfg.expiry.Then == "" {
		cfg.expiry.Then = ThenPause
	}
	for attempt := 1; ; attempt++ {
		sb, err := c.getOrCreate(ctx, name, cfg)
		// Another caller created or killed the sandbox in the meantime.
		again := errors.Is(err, errNameTaken) || errors.Is(err, ErrGone)
		if !again || attempt == maxNameAttempts {
			return sb, err
		}
		select {
		case <-time.After(time.Duration(attempt) * nameAttemptPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// maxNameAttempts limits the attempts of [Client.GetOrCreate]. More than one attempt may be
// necessary, because a service may list a sandbox that has ended, or refuse a sandbox for another
// reason. The pause after the first attempt is nameAttemptPause. Each later pause is longer than
// the one before by nameAttemptPause.
const (
	maxNameAttempts  = 10
	nameAttemptPause = 20 * time.Millisecond
)

var errNameTaken = errors.New("sandbox: another sandbox may have the name")

func (c *Client) getOrCreate(ctx context.Context, name string, cfg sandboxConfig) (*Sandbox, error) {
	info, err := c.findNamed(ctx, name)
	if err != nil {
		return nil, err
	}
	if info != nil {
		if from := cmp.Or(cfg.image, cfg.template); (cfg.templateAsked || cfg.image != "") && !isOf(info, from) {
			return nil, fmt.Errorf("sandbox: get %q: %s was made from the template %s, not from %s: choose another name, or kill it: %w",
				clip.Text(name, 64), info.ID, templateName(info), clip.Text(from, 128), api.ErrConflict)
		}
		if cfg.resources.differ(info) {
			return nil, fmt.Errorf("sandbox: get %q: %s has %d processors, %d MiB of memory and %d MiB of disk, not %+v: change them with Client.Resize, choose another name, or kill it: %w",
				clip.Text(name, 64), info.ID, info.CPUs, info.MemoryBytes>>20, info.DiskBytes>>20, cfg.resources, api.ErrConflict)
		}
		return c.connectTraced(ctx, info.ID, cfg)
	}
	sb, err := c.createTraced(ctx, cfg)
	if errors.Is(err, api.ErrConflict) {
		return nil, fmt.Errorf("%w: %w", errNameTaken, err)
	}
	if err != nil {
		return nil, err
	}
	sb.created = false
	sb.config.metadata, sb.config.uniqueLabel = nil, "" // a second sandbox with the same configuration, for installing packages, has no name
	return sb, nil
}

// findNamed returns the sandbox with a name, or nil if there is none. If there are several it
// returns the oldest, so that all callers agree.
func (c *Client) findNamed(ctx context.Context, name string) (found *Info, err error) {
	for info, err := range c.List(ctx, &ListParams{Metadata: map[string]string{NameLabel: name}}) {
		if err != nil {
			return nil, fmt.Errorf("sandbox: look for %q: %w", clip.Text(name, 64), err)
		}
		if found == nil || info.StartedAt.Before(found.StartedAt) {
			found = &info
		}
	}
	return found, nil
}

// isOf reports whether a sandbox was created from template, which is the id or a name of a
// template.
func isOf(info *Info, template string) bool {
	name, _, _ := strings.Cut(template, ":")
	return template == info.TemplateID || name == info.TemplateID || name == info.Alias
}

func templateName(info *Info) string {
	if info.Alias != "" {
		return info.Alias
	}
	return info.TemplateID
}
