package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
)

// NameLabel is the key of the label that has the name of a sandbox of
// [Client.GetOrCreate]. List, Reap and `e2bctl ls -m` find sandboxes by it.
const NameLabel = "e2bctl.name"

// maxName limits the length of a sandbox's name, in bytes.
const maxName = 256

// GetOrCreate returns a handle of the sandbox with a name, and creates the sandbox if there is
// none. So this program or another one finds the sandbox of a conversation, a user or a job again.
// A paused sandbox is resumed. opts apply to a new sandbox; of them, an existing one takes only
// each [HandleOption]. If opts name a template and the existing sandbox has another one, the error
// is [ErrConflict].
//
// The handle does not own the sandbox: Close leaves it, and [Sandbox.Kill] ends it. At the end of
// its lifetime the sandbox is paused, unless [Expiry].Then says otherwise. The lifetime is
// Expiry.After, 5 minutes by default.
//
// The name belongs to the API key, whatever client uses it, and has 1 to 256 bytes of UTF-8. On a
// local cloud, callers at the same time get the same sandbox. Other services cannot hold one of
// two callers back: there each caller may create a sandbox. Later calls return the older one, and
// the other stays until its lifetime is over. A fork has the name, too, and is returned once the
// original has ended.
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
		// Another caller created or killed it meanwhile.
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

// maxNameAttempts limits the attempts of [Client.GetOrCreate]: a service may go on to
// list a sandbox that is gone, or refuse one for another reason. The first pause between
// attempts is nameAttemptPause, and each later pause is longer by the same time.
const (
	maxNameAttempts  = 10
	nameAttemptPause = 20 * time.Millisecond
)

var errNameTaken = errors.New("sandbox: another sandbox may have the name")

func (c *Client) getOrCreate(ctx context.Context, name string, cfg sandboxConfig) (*Sandbox, error) {
	info, err := c.named(ctx, name)
	if err != nil {
		return nil, err
	}
	if info != nil {
		if cfg.templateAsked && !isOf(info, cfg.template) {
			return nil, fmt.Errorf("sandbox: get %q: %s was made from the template %s, not from %s: choose another name, or kill it: %w",
				clip.Text(name, 64), info.ID, templateName(info), clip.Text(cfg.template, 128), api.ErrConflict)
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
	sb.config.metadata, sb.config.uniqueLabel = nil, "" // a sandbox made like it, to install packages, has no name
	return sb, nil
}

// named returns the sandbox that has a name, nil if there is none. Of several it is the
// oldest, so that all callers agree.
func (c *Client) named(ctx context.Context, name string) (found *Info, err error) {
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

// isOf reports whether a sandbox was made from a template, which is an id or a name.
func isOf(info *Info, template string) bool {
	template, _, _ = strings.Cut(template, ":")
	return template == info.TemplateID || template == info.Alias
}

func templateName(info *Info) string {
	if info.Alias != "" {
		return info.Alias
	}
	return info.TemplateID
}
