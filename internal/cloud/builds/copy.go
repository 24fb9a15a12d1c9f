package builds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/envdclient"
)

// copy runs COPY and ADD. The archive is unpacked in the sandbox; the server does not read it.
func (r *run) copy(ctx context.Context, kind string, s Step) (bool, error) {
	p, err := r.placement(kind, s)
	if err != nil {
		return false, err
	}
	what := fmt.Sprintf("%s %s%s", kind, s.fromFlag(), clip.Text(p.Source, maxRepeated))
	if s.FromStage != "" {
		if err := r.copyStage(ctx, s.FromStage, p); err != nil {
			return false, fmt.Errorf("%s: %w", what, err)
		}
		return true, nil
	}
	if s.FilesHash == "" {
		return false, fmt.Errorf("%s has no filesHash", kind)
	}
	archive, size, err := r.uploads.open(s.FilesHash)
	if errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("%s: its files were not uploaded, or were removed to make room: build it again", what)
	}
	if err != nil {
		return false, err
	}
	defer archive.Close()
	inside, err := r.sandbox(ctx)
	if err != nil {
		return false, err
	}
	if err := inside.client.Place(ctx, archive, size, p); err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	return true, nil
}

// placement returns the source and the destination of a COPY or ADD.
func (r *run) placement(kind string, s Step) (p envdclient.Placement, err error) {
	args, err := arguments(kind, s, 2, 4)
	if err != nil {
		return p, err
	}
	source, destination, owner, mode := args[0], r.expand(args[1]), r.expand(args[2]), args[3]
	name, _ := r.user()
	if owner == "" && s.FromStage == "" { // files of a stage already have owners
		owner = name
	}
	if onlyID().MatchString(owner) { // the group has the same id as the user, as in Docker
		owner += ":" + owner
	}
	switch {
	case source == "" || destination == "":
		return p, fmt.Errorf("%s has an empty source or destination", kind)
	case owner != "" && !ownerName().MatchString(owner):
		return p, fmt.Errorf("%s: the owner '%s' must be user or user:group", kind, clip.Text(owner, maxRepeated))
	case mode != "" && !octalMode().MatchString(mode):
		return p, fmt.Errorf("%s: the mode '%s' must be octal", kind, clip.Text(mode, maxRepeated))
	}
	to := r.absolute(destination)
	if strings.HasSuffix(destination, "/") {
		to = strings.TrimSuffix(to, "/") + "/"
	}
	return envdclient.Placement{Source: source, Target: to, Owner: owner, Mode: mode, User: cmp.Or(owner, "root")}, nil
}

// copyStage copies files of a stage. It packs them in a sandbox that has the layers of the
// stage.
func (r *run) copyStage(ctx context.Context, name string, p envdclient.Placement) error {
	from, ok := r.stages[name]
	if !ok {
		return errors.New("there is no stage of that name before")
	}
	inside, err := r.sandbox(ctx)
	if err != nil {
		return err
	}
	other, err := r.launch(ctx, from.content, "")
	if err != nil {
		return err
	}
	defer r.end(other)
	source := r.expand(p.Source)
	p.Source = ""
	return other.client.Pack(ctx, source, func(archive io.Reader) error { return inside.client.Place(ctx, archive, -1, p) })
}
