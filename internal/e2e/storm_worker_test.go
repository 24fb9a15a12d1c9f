//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// worker uses one box after the other.
type worker struct {
	*storm
	n      int
	random *rand.Rand
	box    *box
	count  int      // the number of written and set values, so that no two are the same
	killed string   // the last sandbox whose kill was answered
	did    []string // the last calls, the newest at the end
}

// violated reports a violation, with the worker's last calls.
func (w *worker) violated(format string, args ...any) {
	w.storm.violated("worker %d: %s; before that:\n\t%s", w.n, fmt.Sprintf(format, args...), strings.Join(w.did, "\n\t"))
}

// remember keeps the result of a call, for the report of a later violation.
func (w *worker) remember(name string, began time.Time, before, after int, err error) {
	id := ""
	if w.box != nil {
		id = w.box.sb.ID()
	}
	call := fmt.Sprintf("%s to %s: %s %s, episodes %d to %d: %v", began.Format("05.000"), time.Now().Format("05.000"), id, name, before, after, err)
	if w.did = append(w.did, call); len(w.did) > 12 {
		w.did = w.did[1:]
	}
}

// work does one action after the other until the storm is over.
func (w *worker) work(over context.Context) {
	things := []struct {
		name   string
		weight int
		do     func(name string)
	}{
		{"write", 8, w.write}, {"read", 8, w.read}, {"command", 6, w.command}, {"print", 4, w.print}, {"set", 6, w.set}, {"get", 8, w.get},
		{"list", 3, w.list}, {"pause", 2, w.pause}, {"snapshot", 1, w.snapshot}, {"fork", 1, w.fork}, {"kill", 1, w.kill},
	}
	var all []func()
	for _, thing := range things {
		for range thing.weight {
			all = append(all, func() { thing.do(thing.name) })
		}
	}
	for over.Err() == nil {
		switch {
		case w.box == nil:
			w.create()
		case w.settle():
			all[w.random.IntN(len(all))]()
		}
	}
	if w.box != nil {
		_ = w.box.sb.Close()
	}
}

// try makes a call and reports whether it was answered. One call in ten is cancelled at some
// time. If the call was not answered, a fault must have acted or the call was cancelled. allowed
// are other errors that it may return.
func (w *worker) try(name string, call func(ctx context.Context) error, allowed ...error) bool {
	began := time.Now()
	before, _ := w.now()
	limit := 2 * patience.Limit
	if w.random.IntN(10) == 0 {
		limit = time.Duration(w.random.Int64N(int64(300 * time.Millisecond)))
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	err := call(ctx)
	after, _ := w.now()
	w.remember(name, began, before, after, err)
	w.mu.Lock()
	w.operations[name]++
	w.mu.Unlock()
	if err == nil {
		return true
	}
	gone, isGone := errors.AsType[*sandbox.GoneError](err)
	switch {
	case before%2 == 1 || before != after: // a fault acted
	case limit < patience.Limit && ctx.Err() != nil: // it was cancelled
	case isGone && gone.State == sandbox.GonePaused && w.box != nil && w.box.wavers: // a late pause
	case slices.ContainsFunc(allowed, func(one error) bool { return errors.Is(err, one) }):
	default:
		w.violated("%s failed without a fault: %v", name, err)
	}
	if w.box != nil {
		w.box.starts = -1 // it is checked before it is used again
	}
	return false
}

// settle finds out whether the box still exists, if something may have happened to it, and
// reports whether it runs.
func (w *worker) settle() bool {
	b := w.box
	_, starts := w.now()
	if b.starts == starts {
		return true
	}
	patience.Until(w.t, "no fault acts", w.calm)
	_, now := w.now()
	info, err := w.client.Info(w.t.Context(), b.sb.ID())
	if _, later := w.now(); later != now || !w.calm() {
		return false // the next call asks again
	}
	mayBeGone := now != b.seen && b.mayBeGone()
	if now != b.seen {
		b.died()
	}
	switch {
	case errors.Is(err, sandbox.ErrGone):
		if !mayBeGone {
			w.violated("sandbox %s is lost: %v", b.sb.ID(), err)
		}
		_ = b.sb.Close()
		w.box = nil
		return false
	case err != nil:
		w.violated("ask for sandbox %s: %v", b.sb.ID(), err)
		return false
	case now != b.seen && b.files == nil:
		w.violated("sandbox %s was never paused, and is there after the server was killed", b.sb.ID())
	}
	if info.State == api.StatePaused || now != b.seen {
		return w.resume()
	}
	b.starts = now
	return true
}

// resume connects to the box anew, which resumes it, and reports whether that was answered.
func (w *worker) resume() bool {
	b := w.box
	_, now := w.now()
	var again *sandbox.Sandbox
	answered := w.try("resume", func(ctx context.Context) (err error) {
		again, err = w.client.Connect(ctx, b.sb.ID(), sandbox.WithExpiry(sandbox.Expiry{After: time.Hour}))
		return err
	})
	if answered {
		_ = b.sb.Detach()
		b.sb, b.starts, b.seen = again, now, now
	}
	return answered
}

func (w *worker) create() {
	_, now := w.now()
	var made *sandbox.Sandbox
	if w.try("create", func(ctx context.Context) (err error) {
		made, err = w.client.Create(ctx, sandbox.WithExpiry(sandbox.Expiry{After: time.Hour}))
		return err
	}) {
		w.box = newBox(made, now, files{})
		return
	}
	patience.Until(w.t, "no fault acts", w.calm)
}

// text returns a content that no other file has, of a size at which something may break.
func (w *worker) text() string {
	w.count++
	sizes := []int{1, 100, 4096, 65535, 65536, 65537, 256<<10 - 1, 256 << 10, 256<<10 + 1, 1 << 20}
	line := fmt.Sprintf("%d of worker %d\n", w.count, w.n)
	size := sizes[w.random.IntN(len(sizes))]
	return line + strings.Repeat(line, size/len(line))
}

// path returns the path of a file: one that may exist, or a new one. A file whose last write was
// not answered is not written again, because that write may still happen.
func (w *worker) path() string {
	for range 5 {
		path := fmt.Sprintf("file-%d", w.random.IntN(12))
		if len(w.box.files[path]) < 2 {
			return path
		}
	}
	w.count++
	return fmt.Sprintf("more-%d", w.count)
}

func (w *worker) write(name string) {
	b, path, text := w.box, w.path(), w.text()
	if w.try(name, func(ctx context.Context) error { return b.sb.Files.WriteText(ctx, path, text, nil) }) {
		b.files[path] = []string{text}
	} else {
		b.files[path] = append(slices.Clone(b.files.of(path)), text)
	}
}

func (w *worker) read(name string) {
	paths := slices.Sorted(maps.Keys(w.box.files))
	if len(paths) == 0 {
		return
	}
	w.check(name, w.box.sb, w.box.files, paths[w.random.IntN(len(paths)):][:1])
}

// check reads files of a sandbox, and compares them with their possible contents.
func (w *worker) check(name string, sb *sandbox.Sandbox, has files, paths []string) {
	for _, path := range paths {
		var got string
		if !w.try(name, func(ctx context.Context) (err error) { got, err = read(ctx, sb, path); return err }) {
			return
		}
		if held := has.of(path); !slices.Contains(held, got) {
			w.violated("%s: %s in %s is %s, want %s or %d others", name, path, sb.ID(), heldBy(got), heldBy(held[0]), len(held)-1)
		}
	}
}

// command checks that output arrives completely, and once.
func (w *worker) command(name string) {
	n, got := w.random.IntN(20_000), ""
	if w.try(name, func(ctx context.Context) error {
		result, err := w.box.sb.Commands.Run(ctx, fmt.Sprintf("seq %d", n), nil)
		if err == nil {
			got = result.Stdout
		}
		return err
	}) {
		w.checkLines(name, got, n)
	}
}

func (w *worker) print(name string) {
	n, got := w.random.IntN(5_000), ""
	code := fmt.Sprintf("for i in range(1, %d + 1): print(i)", n)
	if w.code(name, code, func(e *sandbox.Execution) { got = e.Stdout }) {
		w.checkLines(name, got, n)
	}
}

// checkLines compares output with the numbers from 1 to n.
func (w *worker) checkLines(name, got string, n int) {
	lines := strings.Fields(got)
	for i, line := range lines {
		if line != strconv.Itoa(i+1) {
			w.violated("%s: line %d is %q", name, i+1, line)
			return
		}
	}
	if len(lines) != n {
		w.violated("%s: got %d lines, want %d", name, len(lines), n)
	}
}

// code runs code in the kernel of the box. If it is not answered, the kernel may be gone.
func (w *worker) code(name, code string, seen func(*sandbox.Execution)) bool {
	var allowed []error
	if w.box.fresh {
		allowed = []error{sandbox.ErrKernelRestarted, sandbox.ErrKernelLost}
	}
	answered := w.try(name, func(ctx context.Context) error {
		e, err := w.box.sb.RunCode(ctx, code, nil)
		if err == nil {
			seen(e)
		}
		return err
	}, allowed...)
	if !answered {
		w.box.fresh = true
	}
	return answered
}

func (w *worker) set(name string) {
	w.count++
	variable, value := fmt.Sprintf("v%d", w.random.IntN(8)), w.count
	_, known := w.box.vars[variable]
	if w.code(name, fmt.Sprintf("%s = %d", variable, value), func(*sandbox.Execution) {}) {
		w.box.vars[variable] = value
	} else if known {
		delete(w.box.vars, variable) // it is not known which of both values it has
	}
}

func (w *worker) get(name string) {
	variables := slices.Sorted(maps.Keys(w.box.vars))
	if len(variables) == 0 {
		return
	}
	variable := variables[w.random.IntN(len(variables))]
	var got string
	if !w.code(name, fmt.Sprintf("globals().get(%q)", variable), func(e *sandbox.Execution) { got = e.Text() }) {
		return
	}
	switch want := strconv.Itoa(w.box.vars[variable]); {
	case got == want:
	case got == "" && w.box.fresh:
		w.box.vars, w.box.fresh = map[string]int{}, false
	default:
		w.violated("%s: %s is %q, want %s", name, variable, got, want)
	}
}

// list checks that a list has the box, and no killed sandbox.
func (w *worker) list(name string) {
	var ids []string
	if !w.try(name, func(ctx context.Context) error {
		ids = nil
		for info, err := range w.client.List(ctx, nil) {
			if err != nil {
				return err
			}
			ids = append(ids, info.ID)
		}
		return nil
	}) {
		return
	}
	if _, starts := w.now(); starts == w.box.starts && !slices.Contains(ids, w.box.sb.ID()) {
		w.violated("%s: sandbox %s is not in it", name, w.box.sb.ID())
	}
	if slices.Contains(ids, w.killed) {
		w.violated("%s: sandbox %s is in it, whose kill was answered", name, w.killed)
	}
}

func (w *worker) pause(name string) {
	b := w.box
	p := &sandbox.PauseParams{}
	if w.random.IntN(2) == 0 {
		p.Mode = sandbox.PauseFilesystem
		b.fresh = true
	}
	if w.try(name, func(ctx context.Context) error { return b.sb.Pause(ctx, p) }) {
		b.kept, b.unanswered = b.files.copied(), nil
		w.resume()
		return
	}
	b.wavers = true
	earlier := b.unanswered // any of them may be the last that happened
	if earlier == nil {
		earlier = b.kept
	}
	if b.unanswered = b.files.copied(); earlier != nil {
		b.unanswered = earlier.or(b.unanswered)
	}
}

func (w *worker) snapshot(name string) {
	has := w.box.files.copied()
	var made *sandbox.Snapshot
	if !w.try(name, func(ctx context.Context) (err error) { made, err = w.box.sb.Snapshot(ctx, nil); return err }) {
		return
	}
	var from *sandbox.Sandbox
	if !w.try("create from it", func(ctx context.Context) (err error) {
		from, err = w.client.Create(ctx, sandbox.WithTemplate(made.ID), sandbox.WithExpiry(sandbox.Expiry{After: time.Hour}))
		return err
	}) {
		return
	}
	w.check("read from it", from, has, slices.Sorted(maps.Keys(has)))
	_ = from.Close()
	w.try("delete snapshot", func(ctx context.Context) error { return w.client.Snapshots.Delete(ctx, made.ID) })
}

func (w *worker) fork(name string) {
	has := w.box.files.copied()
	var forks []sandbox.ForkResult
	answered := w.try(name, func(ctx context.Context) (err error) {
		forks, err = w.box.sb.Fork(ctx, &sandbox.ForkParams{Count: 1 + w.random.IntN(2)})
		for _, fork := range forks {
			err = errors.Join(err, fork.Err)
		}
		return err
	})
	for _, fork := range forks {
		if answered {
			w.check("read from it", fork.Sandbox, has, slices.Sorted(maps.Keys(has)))
		}
		_ = fork.Sandbox.Close()
	}
}

func (w *worker) kill(name string) {
	sb := w.box.sb
	if w.try(name, sb.Kill) {
		w.killed = sb.ID()
	}
	_ = sb.Close()
	w.box = nil
}
