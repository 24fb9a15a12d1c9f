//go:build linux

package room

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/holder"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/instance"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/survey"
)

// Root of a sandbox with a range of ids can read every file of the trees, because
// files of the host's root are its own there. So that it sees no more of the host
// than every user does, files that are closed to others on the host are left out of
// its trees, whoever owns them. If the directory of a requested tree is itself
// closed to others, the tree is shown whole: its modes say nothing about what is in
// it.

// private finds what must not be shown, while the room starts. The first sandbox, which
// is made to try the machine, waits for the result.
type private struct {
	found  chan struct{} // closed when list and err are set; nil if nothing has to be hidden
	list   []byte        // see inside.readPrivate
	err    error
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// A survey is trusted for a day: files in directories that have not changed since
// then are not looked at again. A room that stays alive makes a new survey in the
// background, for the next room, unless that was done less than a minute ago.
const (
	surveyExpires = 24 * time.Hour
	surveyRenewed = time.Minute
)

// surveys are the latest surveys of this process, by the path of the tree.
var surveys struct {
	sync.Mutex
	latest map[string]*survey.Snapshot
}

// findPrivate begins to look for files that are closed to others, in mounts of the trees
// as sandboxes are shown them. An error says that this machine refuses such mounts.
func (r *Room) findPrivate(ctx context.Context) error {
	// A survey would take the refusal for that of a directory, and keep that all is closed.
	if err := holder.TryOpenat2(); err != nil {
		return err
	}
	roots := make([]*os.File, 0, len(r.trees))
	for _, path := range r.trees {
		root, err := cloneTree(path)
		if err != nil {
			wire.CloseAll(roots)
			return err
		}
		roots = append(roots, root)
	}
	ctx, r.private.cancel = context.WithCancel(context.WithoutCancel(ctx))
	found := make(chan struct{})
	r.private.found = found
	r.private.work.Go(func() {
		outdated := r.surveyTrees(ctx, roots)
		wire.CloseAll(roots)
		close(found)
		for _, path := range outdated {
			select { // sandboxes have priority
			case <-time.After(surveyPause):
			case <-ctx.Done():
				return
			}
			if err := r.surveyAgain(ctx, path); err != nil && ctx.Err() == nil {
				r.options.Logger.WarnContext(ctx, "a tree could not be looked through again", "tree", path, "error", err)
			}
		}
	})
	return nil
}

// surveyPause is how long a room waits before it looks at all files again.
const surveyPause = 5 * time.Second

// surveyTrees makes the list, and returns the trees for which it used an earlier
// survey that is due for renewal.
func (r *Room) surveyTrees(ctx context.Context, roots []*os.File) (outdated []string) {
	var hidden []string
	for i, path := range r.trees {
		s, err := r.surveyTree(ctx, roots[i], path, latestSurvey(r.surveyFile(path), path))
		if err != nil {
			r.private.err = fmt.Errorf("look for what is closed to others in %s: %w", path, err)
			return nil
		}
		if time.Since(s.Made) > surveyRenewed {
			outdated = append(outdated, path)
		}
		if s.Closed() && i >= r.system {
			continue
		}
		for _, name := range s.Private() {
			hidden = append(hidden, filepath.Join(path, name))
		}
	}
	if len(hidden) > 0 {
		r.options.Logger.DebugContext(ctx, "what is closed to others is not shown", "paths", hidden)
	}
	for _, path := range hidden {
		r.private.list = append(append(r.private.list, path...), 0)
	}
	return outdated
}

// surveyAgain looks at all files of a tree.
func (r *Room) surveyAgain(ctx context.Context, path string) error {
	root, err := cloneTree(path)
	if err != nil {
		return err
	}
	defer root.Close()
	_, err = r.surveyTree(ctx, root, path, nil)
	return err
}

// surveyTree surveys the mount that sandboxes are shown, without other mounts on
// it, and stores the result for the next time.
func (r *Room) surveyTree(ctx context.Context, root *os.File, path string, before *survey.Snapshot) (*survey.Snapshot, error) {
	s, err := survey.Find(ctx, root, before)
	if err != nil {
		return nil, err
	}
	surveys.Lock()
	defer surveys.Unlock()
	if surveys.latest == nil {
		surveys.latest = make(map[string]*survey.Snapshot)
	}
	surveys.latest[path] = s
	if before == nil {
		if err := saveSurvey(r.surveyFile(path), s); err != nil {
			r.options.Logger.DebugContext(ctx, "the next start takes longer: a survey could not be kept", "tree", path, "error", err)
		}
	}
	return s, nil
}

// latestSurvey returns the last survey of a tree, by this process or another one,
// if it can still be trusted, else nil.
func latestSurvey(file, path string) *survey.Snapshot {
	surveys.Lock()
	s := surveys.latest[path]
	surveys.Unlock()
	if s == nil {
		s = readSurvey(file)
	}
	if s == nil || time.Since(s.Made) > surveyExpires || time.Since(s.Made) < 0 {
		return nil
	}
	return s
}

// surveyFile returns where the survey of a tree is stored: beside the instance
// directory.
func (r *Room) surveyFile(path string) string {
	name := sha256.Sum256([]byte(path))
	return filepath.Join(filepath.Dir(r.options.Dir), fmt.Sprintf("survey-%x", name[:16]))
}

const maxSurvey = 256 << 20

// readSurvey returns nil for a file that is not a survey, or that somebody else
// could have written to.
func readSurvey(file string) *survey.Snapshot {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || !instance.OwnedByUs(info) || info.Mode().Perm()&0o022 != 0 || info.Size() > maxSurvey {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSurvey))
	if err != nil {
		return nil
	}
	var s survey.Snapshot
	if err := s.UnmarshalBinary(data); err != nil {
		return nil
	}
	return &s
}

// saveSurvey replaces the file atomically, because another server may be reading
// it.
func saveSurvey(file string, s *survey.Snapshot) error {
	data, err := s.MarshalBinary()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".survey-") // for this user only
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// wait returns when it is known what must not be shown.
func (p *private) wait(ctx context.Context) error {
	if p.found == nil {
		return nil
	}
	select {
	case <-p.found:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end ends the search.
func (p *private) end() {
	if p.cancel != nil {
		p.cancel()
		p.work.Wait()
	}
}
