//go:build linux

package room

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/holder"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/instance"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/survey"
)

// Root of a sandbox with a range of ids can read every file of the trees, because files of the
// host's root are its own there. To show it no more of the host than every user sees, its trees
// leave out files that are closed to others on the host, regardless of their owner. If the
// directory of a requested tree is itself closed to others, the tree is shown whole: its modes
// say nothing about its content.

// private finds the files to hide from sandboxes. It searches for them while the room starts, and
// again before the last survey is a day old. The first sandbox, which tests the machine, waits for
// the result.
type private struct {
	dir    string // the directory with the stored surveys
	logger *slog.Logger

	found   chan struct{} // closed when there is a result; nil if nothing has to be hidden
	result  atomic.Pointer[unshown]
	changed chan struct{} // signalled when warm sandboxes may no longer be used
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

// newPrivate returns a search that has not begun, and that stores its surveys in dir.
func newPrivate(dir string, logger *slog.Logger) private {
	return private{dir: dir, logger: logger}
}

// unshown lists the files that sandboxes must not see in the trees. It is immutable.
type unshown struct {
	list []byte    // paths in the format that inside.readPrivate reads
	made time.Time // start of the oldest full search among the surveys from which list was made
	err  error     // reason why no sandbox may start
}

// age returns the age of the oldest survey from which u was made. It includes the time for which the
// machine was asleep.
func (u *unshown) age() time.Duration { return time.Now().Round(0).Sub(u.made.Round(0)) }

// A survey is trusted for a day: files in directories that have not changed since the survey are
// not checked again. A room makes a new survey in the background soon after its start, unless the
// last survey is less than a minute old. It makes another survey whenever the last survey is
// surveyDue old. So no sandbox has to wait for a survey.
const (
	surveyExpires = 24 * time.Hour
	surveyDue     = 20 * time.Hour
	surveyRenewed = time.Minute
	surveyPause   = 5 * time.Second  // wait after the room's start, while sandboxes have priority
	surveyCheck   = 10 * time.Minute // interval between checks of the survey's age
)

// surveys are the latest surveys of this process, by the path of the tree.
var surveys struct {
	sync.Mutex
	latest map[string]*survey.Snapshot
}

// surveyed lists the trees to survey. system is the number of trees that belong to the system; these
// are the first in the list.
type surveyed struct {
	paths  []string
	system int
}

// find begins to search trees for files that are closed to other users. It
// searches in mounts of these trees. The mounts are made like the mounts in sandboxes. An error means
// that this machine refuses such mounts.
func (p *private) find(ctx context.Context, trees surveyed) error {
	// A survey would take the refusal for a closed directory, and record all files as closed.
	if err := holder.TryOpenat2(); err != nil {
		return err
	}
	roots, err := cloneTrees(trees.paths)
	if err != nil {
		return err
	}
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	found := make(chan struct{})
	p.found, p.changed = found, make(chan struct{}, 1)
	p.work.Go(func() {
		first := p.surveyTrees(ctx, trees, roots, p.latestSurvey)
		wire.CloseAll(roots)
		p.result.Store(first)
		close(found)
		if first.err == nil {
			p.renew(ctx, trees)
		}
	})
	return nil
}

func cloneTrees(paths []string) ([]*os.File, error) {
	roots := make([]*os.File, 0, len(paths))
	for _, path := range paths {
		root, err := cloneTree(path)
		if err != nil {
			wire.CloseAll(roots)
			return nil, err
		}
		roots = append(roots, root)
	}
	return roots, nil
}

// renew makes a full survey whenever the last one is due, until ctx ends.
func (p *private) renew(ctx context.Context, trees surveyed) {
	for pause, due := surveyPause, surveyRenewed; ; pause, due = surveyCheck, surveyDue {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		// A clock that was set back would make a survey last for longer.
		if age := p.result.Load().age(); age > due || age < 0 {
			p.findAgain(ctx, trees)
		}
	}
}

// findAgain makes a full survey, and applies the result to sandboxes that start from now on. If the
// survey fails, the last result is used until that result expires.
func (p *private) findAgain(ctx context.Context, trees surveyed) {
	before := p.result.Load()
	now := &unshown{}
	roots, err := cloneTrees(trees.paths)
	if err != nil {
		now.err = fmt.Errorf("look for files that are closed to other users: %w", err)
	} else {
		now = p.surveyTrees(ctx, trees, roots, func(string) *survey.Snapshot { return nil })
		wire.CloseAll(roots)
	}
	switch {
	case ctx.Err() != nil:
		return
	case now.err != nil:
		p.logger.WarnContext(ctx, "the trees could not be looked through again", "error", now.err)
		if before.age() < surveyExpires {
			return
		}
		now.list, now.made = before.list, before.made
	}
	p.result.Store(now)
	if now.err != nil || !bytes.Equal(before.list, now.list) {
		tell(p.changed)
	}
}

// surveyTrees surveys the trees. The survey of each tree starts from the last survey of this tree.
func (p *private) surveyTrees(ctx context.Context, trees surveyed, roots []*os.File, last func(path string) *survey.Snapshot) *unshown {
	var hidden []string
	result := &unshown{made: time.Now()}
	for i, path := range trees.paths {
		s, err := p.surveyTree(ctx, roots[i], path, last(path))
		if err != nil {
			return &unshown{err: fmt.Errorf("look for files that are closed to other users in %s: %w", path, err)}
		}
		if s.Made.Before(result.made) {
			result.made = s.Made
		}
		if s.Closed() && i >= trees.system {
			continue
		}
		for _, name := range s.Private() {
			hidden = append(hidden, filepath.Join(path, name))
		}
	}
	if len(hidden) > 0 {
		p.logger.DebugContext(ctx, "what is closed to others is not shown", "paths", hidden)
	}
	for _, path := range hidden {
		result.list = append(append(result.list, path...), 0)
	}
	return result
}

// surveyTree surveys one tree. root is a clone of the tree's mount, without other mounts inside the
// tree. The tree's mount in sandboxes also leaves them out. surveyTree stores the result for the next
// survey.
func (p *private) surveyTree(ctx context.Context, root *os.File, path string, before *survey.Snapshot) (*survey.Snapshot, error) {
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
		if err := saveSurvey(p.surveyFile(path), s); err != nil {
			p.logger.DebugContext(ctx, "the next start takes longer: a survey could not be kept", "tree", path, "error", err)
		}
	}
	return s, nil
}

// latestSurvey returns the last survey of a tree, by this process or another process. It returns
// nil if that survey can no longer be trusted.
func (p *private) latestSurvey(path string) *survey.Snapshot {
	surveys.Lock()
	s := surveys.latest[path]
	surveys.Unlock()
	if s == nil {
		s = readSurvey(p.surveyFile(path))
	}
	if s == nil || time.Since(s.Made) > surveyExpires || time.Since(s.Made) < 0 {
		return nil
	}
	return s
}

// surveyFile returns the path of the file with a tree's stored survey.
func (p *private) surveyFile(path string) string {
	name := sha256.Sum256([]byte(path))
	return filepath.Join(p.dir, fmt.Sprintf("survey-%x", name[:16]))
}

const maxSurvey = 256 << 20

// readSurvey reads a stored survey. It returns nil if the file is not a survey, or if another user
// could have written to the file.
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

// saveSurvey writes s to file. It replaces an existing file atomically, because another server may
// be reading that file.
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

// wait waits until the files to hide are known.
func (p *private) wait(ctx context.Context) error {
	if p.found == nil {
		return nil
	}
	select {
	case <-p.found:
		return p.result.Load().err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lost returns the error of the last survey of the trees; nil means success.
func (p *private) lost() error {
	if result := p.result.Load(); result != nil {
		return result.err
	}
	return nil
}

// end cancels the search for files to hide, and waits until the search has ended.
func (p *private) end() {
	if p.cancel != nil {
		p.cancel()
		p.work.Wait()
	}
}
