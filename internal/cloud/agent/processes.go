//go:build linux

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/gen/process"
)

const (
	maxProcesses = 1024
	// retention is how long the end of a process can still be asked for.
	retention  = 30 * time.Second
	maxRetired = 1024
)

var (
	errTooManyProcesses = fmt.Errorf("too many processes: the bound is %d", maxProcesses)
	errClosed           = errors.New("the sandbox is shutting down")
	errNoSelector       = errors.New("invalid input type <nil>")
)

// notFoundError names the process that does not exist, in envd's words.
type notFoundError struct{ what string }

func (e *notFoundError) Error() string { return "process with " + e.what + " not found" }

// processes is every process that was started by a client.
type processes struct {
	waits sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	starting int
	live     map[uint32]*running
	retired  []retired // oldest first
}

// retired is what stays of a process for a while.
type retired struct {
	pid uint32
	tag *string
	end *process.ProcessEvent_EndEvent
	at  time.Time
}

func newProcesses() *processes {
	return &processes{live: make(map[uint32]*running)}
}

func (ps *processes) start(l *launch) (*running, *subscriber, error) {
	ps.mu.Lock()
	switch {
	case ps.closed:
		ps.mu.Unlock()
		return nil, nil, errClosed
	case len(ps.live)+ps.starting >= maxProcesses:
		ps.mu.Unlock()
		return nil, nil, errTooManyProcesses
	}
	ps.starting++
	ps.waits.Add(1)
	ps.mu.Unlock()

	r, first, err := l.start()

	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.starting--
	if err != nil {
		ps.waits.Done()
		return nil, nil, err
	}
	ps.live[r.pid] = r
	// The number is taken again: who asks for it means the new one.
	ps.retired = slices.DeleteFunc(ps.retired, func(old retired) bool { return old.pid == r.pid })
	if ps.closed {
		r.abandon()
	}
	go func() {
		defer ps.waits.Done()
		r.wait()
		ps.retire(r)
		r.finish()
	}()
	return r, first, nil
}

func (ps *processes) retire(r *running) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	// A process that starts now may have got the number already.
	if ps.live[r.pid] == r {
		delete(ps.live, r.pid)
	}
	now := time.Now()
	ps.retired = append(ps.retired, retired{pid: r.pid, tag: r.tag, end: r.end, at: now})
	drop := max(0, len(ps.retired)-maxRetired)
	for drop < len(ps.retired) && now.Sub(ps.retired[drop].at) > retention {
		drop++
	}
	ps.retired = slices.Delete(ps.retired, 0, drop)
}

// find returns a live process.
func (ps *processes) find(s *process.ProcessSelector) (*running, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	switch selector := s.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		if r, ok := ps.live[selector.Pid]; ok {
			return r, nil
		}
		return nil, &notFoundError{fmt.Sprintf("pid %d", selector.Pid)}
	case *process.ProcessSelector_Tag:
		for _, r := range ps.live {
			if r.tag != nil && *r.tag == selector.Tag {
				return r, nil
			}
		}
		return nil, &notFoundError{"tag " + bounded(selector.Tag)}
	}
	return nil, errNoSelector
}

// findRetired returns a process that ended lately.
func (ps *processes) findRetired(s *process.ProcessSelector) (retired, bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, old := range slices.Backward(ps.retired) {
		matches := false
		switch selector := s.GetSelector().(type) {
		case *process.ProcessSelector_Pid:
			matches = old.pid == selector.Pid
		case *process.ProcessSelector_Tag:
			matches = old.tag != nil && *old.tag == selector.Tag
		}
		if matches && time.Since(old.at) <= retention {
			return old, true
		}
	}
	return retired{}, false
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

func (ps *processes) close() error {
	ps.mu.Lock()
	if !ps.closed {
		ps.closed = true
		for _, r := range ps.live {
			r.abandon()
		}
	}
	ps.mu.Unlock()
	ps.waits.Wait()
	return nil
}
