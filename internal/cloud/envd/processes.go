//go:build linux

package envd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/gen/process"
)

const (
	// maxProcesses bounds the number of processes. This number includes an ended process while other
	// processes still hold its output open.
	maxProcesses = 1024
	// outputGrace bounds the wait for the end of the output after the process itself has ended. The
	// daemon of E2B's service waits without a bound. So in the service, a server that a command leaves
	// in the background blocks the client of that command.
	outputGrace = 500 * time.Millisecond
	// killLimit bounds the time that a kill waits for the end of the process.
	killLimit = 5 * time.Second
	// retention is the time for which the result of an ended process stays available. For a client that
	// connects again after a cut, this time is keptFor.
	retention  = 30 * time.Second
	maxRetired = 1024
	// maxTag is the maximum length of a tag. Tags of ended processes are kept, too.
	maxTag = 4096
)

var (
	errTooManyProcesses = fmt.Errorf("too many processes, counting those that ended and whose output is still held open: the bound is %d", maxProcesses)
	errClosed           = errors.New("the sandbox is shutting down")
	errNoSelector       = errors.New("invalid input type <nil>")
)

// processes holds every process started by a client.
type processes struct {
	memory *child.Memory
	logger *slog.Logger
	grace  time.Duration // outputGrace; tests set another time
	waits  sync.WaitGroup
	kept   *budget

	mu       sync.Mutex
	closed   bool
	starting int
	// open contains the processes that run. It also contains an ended process while other processes
	// still hold its output open.
	open    map[*running]struct{}
	live    map[uint32]*running
	retired []retired // records of ended processes, oldest first
}

// retired is the record of an ended process. It is kept for keptFor.
type retired struct {
	was  *running
	pid  uint32
	tag  *string
	end  *process.ProcessEvent_EndEvent
	held bool // other processes held the output of the ended process open
	at   time.Time
	// replaced means that another process now has the pid, so that only its id selects the ended process.
	replaced bool
}

func newProcesses(memory *child.Memory, logger *slog.Logger) *processes {
	return &processes{memory: memory, logger: logger, grace: outputGrace, kept: newBudget(), open: make(map[*running]struct{}), live: make(map[uint32]*running)}
}

func (ps *processes) start(l *launch) (*running, *subscriber, error) {
	ps.mu.Lock()
	switch {
	case ps.closed:
		ps.mu.Unlock()
		return nil, nil, errClosed
	case len(ps.open)+ps.starting >= maxProcesses:
		ps.mu.Unlock()
		return nil, nil, errTooManyProcesses
	}
	ps.starting++
	ps.waits.Add(1)
	ps.mu.Unlock()

	l.memory, l.grace, l.kept = ps.memory, ps.grace, ps.kept
	r, first, err := l.start()

	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.starting--
	if err != nil {
		ps.waits.Done()
		return nil, nil, err
	}
	ps.open[r] = struct{}{}
	ps.live[r.pid] = r
	for i := range ps.retired {
		if ps.retired[i].pid == r.pid {
			ps.retired[i].replaced = true
		}
	}
	if ps.closed {
		r.abandon()
	}
	ps.waits.Go(func() { ps.tell(l, r) })
	go func() {
		defer ps.waits.Done()
		r.wait()
		ps.retire(r, r.held)
		r.finish()
		r.linger()
		ps.forget(r)
	}()
	return r, first, nil
}

// retire records that r has ended, before the subscribers learn of the end. Only the first call
// has an effect.
func (ps *processes) retire(r *running, held bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if r.retired {
		return
	}
	r.retired = true
	// A process that started meanwhile may already have this pid.
	if ps.live[r.pid] == r {
		delete(ps.live, r.pid)
	}
	now := time.Now()
	ps.retired = append(ps.retired, retired{was: r, pid: r.pid, tag: r.tag, end: r.end, held: held, at: now})
	drop := max(0, len(ps.retired)-maxRetired)
	for drop < len(ps.retired) && now.Sub(ps.retired[drop].at) > keptFor {
		drop++
	}
	for _, old := range ps.retired[:drop] {
		ps.kept.leave(old.was.output)
	}
	ps.retired = slices.Delete(ps.retired, 0, drop)
}

// kill ends r, and returns when r has ended and is no longer listed. So every later call of the
// client sees the end. If the kernel cannot end the process yet, kill waits for at most killLimit,
// or until ctx ends.
func (ps *processes) kill(ctx context.Context, r *running) error {
	if err := r.signal(unix.SIGKILL); err != nil {
		return err
	}
	limit := time.NewTimer(killLimit)
	defer limit.Stop()
	select {
	case <-r.ended:
		// The output may still be on its way to a slow client.
		ps.retire(r, false)
	case <-limit.C:
	case <-ctx.Done():
	}
	return nil
}

// forget drops r. It is called once all files of r are closed.
func (ps *processes) forget(r *running) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.open, r)
}

// selected reports whether a selector selects a process.
func selected(s *process.ProcessSelector, pid uint32, tag *string) bool {
	switch selector := s.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		return selector.Pid == pid
	case *process.ProcessSelector_Tag:
		return tag != nil && selector.Tag == *tag
	}
	return false
}

func notFound(s *process.ProcessSelector) error {
	switch selector := s.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		return fmt.Errorf("process with pid %d not found", selector.Pid)
	case *process.ProcessSelector_Tag:
		return fmt.Errorf("process with tag %s not found", bounded(selector.Tag))
	}
	return errNoSelector
}

// find returns a running process. If several processes have the tag, it returns the one with
// the lowest pid.
func (ps *processes) find(s *process.ProcessSelector) (*running, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var found *running
	for pid, r := range ps.live {
		if selected(s, pid, r.tag) && (found == nil || pid < found.pid) {
			found = r
		}
	}
	if found == nil {
		return nil, notFound(s)
	}
	return found, nil
}

// findRetired returns a process that ended recently.
func (ps *processes) findRetired(s *process.ProcessSelector) (retired, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, old := range slices.Backward(ps.retired) {
		if !old.replaced && selected(s, old.pid, old.tag) && time.Since(old.at) <= retention {
			return old, nil
		}
	}
	return retired{}, notFound(s)
}

// findKept returns a process that runs, or an ended process whose output is still kept. If id is not
// empty, id selects the process, and s is ignored.
func (ps *processes) findKept(s *process.ProcessSelector, id string) (*running, error) {
	if id == "" {
		if r, err := ps.find(s); err == nil || errors.Is(err, errNoSelector) {
			return r, err
		}
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, r := range ps.live {
		if id != "" && r.id == id {
			return r, nil
		}
	}
	for _, old := range slices.Backward(ps.retired) {
		named := !old.replaced && selected(s, old.pid, old.tag)
		if id != "" {
			named = old.was.id == id
		}
		if named && time.Since(old.at) <= keptFor {
			return old.was, nil
		}
	}
	return nil, notFound(s)
}

func (ps *processes) list() []*process.ProcessInfo {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	infos := make([]*process.ProcessInfo, 0, len(ps.live))
	for _, r := range ps.live {
		infos = append(infos, &process.ProcessInfo{Config: r.config, Pid: r.pid, Tag: r.tag})
	}
	slices.SortFunc(infos, func(a, b *process.ProcessInfo) int { return cmp.Compare(a.Pid, b.Pid) })
	return infos
}

// followed reports whether a client follows a process that has no terminal.
func (ps *processes) followed() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for r := range ps.open {
		if r.terminal == nil && len(r.output.current()) > 0 {
			return true
		}
	}
	return false
}

func (ps *processes) close() error {
	ps.mu.Lock()
	if !ps.closed {
		ps.closed = true
		for r := range ps.open {
			r.abandon()
		}
	}
	ps.mu.Unlock()
	ps.waits.Wait()
	return nil
}
