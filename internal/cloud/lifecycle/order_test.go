package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"strconv"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestPageCostsAPage checks that a list in pages checks each sandbox once, for any number of
// sandboxes. It does not check sandboxes in other states, or with an earlier start time than
// requested.
func TestPageCostsAPage(t *testing.T) {
	t.Parallel()
	const size, running, paused = 10, 200, 300
	f := &lifecycletest.Fakes{}
	r := lifecycle.New(lifecycle.Options{Store: store.Temporary(t.TempDir()), Launch: f.Launch, MaxSandboxes: running + 1})
	defer end(t, r)
	var all []string // ids of the sandboxes, newest first
	for i := range running + paused {
		sb, err := r.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour, Metadata: map[string]string{"n": strconv.Itoa(i)}})
		must.Do(t, err)
		if i < paused {
			must.Do(t, r.Pause(t.Context(), sb.ID, lifecycle.PauseOptions{DropMemory: true}))
		}
		all = slices.Insert(all, 0, sb.ID)
		r.Advance(time.Millisecond)
	}
	begin, err := r.Get(all[running+paused/2])
	must.Do(t, err)
	young, err := r.Get(all[9])
	must.Do(t, err)
	for name, tt := range map[string]struct {
		query lifecycle.Query
		want  []string
	}{
		"all":                      {lifecycle.Query{Running: true, Paused: true}, all},
		"running":                  {lifecycle.Query{Running: true}, all[:running]},
		"paused":                   {lifecycle.Query{Paused: true}, all[running:]},
		"started after":            {lifecycle.Query{Running: true, Paused: true, StartedAfter: begin.StartedAt}, all[:running+paused/2+1]},
		"paused and started after": {lifecycle.Query{Paused: true, StartedAfter: begin.StartedAt}, all[running : running+paused/2+1]},
		"none":                     {lifecycle.Query{}, nil},
	} {
		for _, ascending := range []bool{false, true} {
			q, looked := tt.query, 0
			q.Ascending, q.Limit = ascending, size
			q.Match = func(*lifecycle.Sandbox) bool { looked++; return true }
			var got []string
			for {
				page := r.Page(q)
				for _, sb := range page {
					got = append(got, sb.ID)
				}
				if looked > len(got) {
					t.Errorf("%s: %d sandboxes were looked at for %d of the list", name, looked, len(got))
				}
				if len(page) < size {
					break
				}
				q.After = new(page[size-1].Position())
			}
			want := slices.Clone(tt.want)
			if ascending {
				slices.Reverse(want)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, ascending %v: got %d sandboxes, want %d in their order", name, ascending, len(got), len(want))
			}
		}
	}
	if n := r.Running(lifecycle.Query{}); n != running {
		t.Errorf("%d are running, want %d", n, running)
	}
	if n := r.Running(lifecycle.Query{StartedAfter: begin.StartedAt}); n != running {
		t.Errorf("%d of those that run were started after one that is paused, want all %d", n, running)
	}
	if n := r.Running(lifecycle.Query{StartedAfter: young.StartedAt}); n != 10 {
		t.Errorf("%d of those that run were started at or after the tenth, want 10", n)
	}
	if n := r.Running(lifecycle.Query{Match: func(sb *lifecycle.Sandbox) bool { return sb.Metadata["n"] >= "4" }}); n != 100 {
		t.Errorf("%d of those that run match, want 100", n)
	}
}

// asked is a sandbox that counts the calls of Err, with which the registry checks a sandbox.
type asked struct {
	*lifecycletest.Fake

	checks *atomic.Int64
}

func (a asked) Err() error {
	a.checks.Add(1)
	return a.Fake.Err()
}

// TestCountCostsNothing checks that the number of all running sandboxes is known without a check of each
// sandbox.
func TestCountCostsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const all = 3
		f, checks := &lifecycletest.Fakes{}, new(atomic.Int64)
		r := lifecycle.New(lifecycle.Options{Store: store.Temporary(t.TempDir()), Launch: func(ctx context.Context, spec lifecycle.Spec) (lifecycle.Instance, error) {
			i, err := f.Launch(ctx, spec)
			if err != nil {
				return nil, err
			}
			return asked{i.(*lifecycletest.Fake), checks}, nil
		}})
		defer end(t, r)
		for range all {
			create(t, r, time.Hour)
		}
		synctest.Wait()
		for what, tt := range map[string]struct {
			query  lifecycle.Query
			checks int64
		}{"all": {checks: 0}, "those that match": {lifecycle.Query{Match: everything}, all}} {
			checks.Store(0)
			if n, done := r.Running(tt.query), checks.Load(); n != all || done != tt.checks {
				t.Errorf("%s: got %d of %d with %d checks, want %d checks", what, n, all, done, tt.checks)
			}
		}
	})
}

// TestListFollowsTheStates checks that each sandbox is in the list of its current state after it is
// paused, is resumed, ends, is killed, or is restored from the store.
func TestListFollowsTheStates(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), t.TempDir())
	must.Do(t, err)
	defer st.Close()
	f := &lifecycletest.Fakes{}
	options := lifecycle.Options{Store: st, Launch: f.Launch}
	r := lifecycle.New(options)
	defer func() { r.Close() }()
	check := func(what string, up, down []string) {
		t.Helper()
		for q, want := range map[*lifecycle.Query][]string{{Running: true}: up, {Paused: true}: down} {
			var got []string
			for _, sb := range r.Page(*q) {
				got = append(got, sb.ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v (running: %v)", what, got, want, q.Running)
			}
		}
	}
	old := create(t, r, time.Hour)
	r.Advance(time.Second)
	young := create(t, r, time.Hour)
	check("created", []string{young.ID, old.ID}, nil)
	pause := func(id string) {
		t.Helper()
		must.Do(t, r.Pause(t.Context(), id, lifecycle.PauseOptions{DropMemory: true}))
	}
	pause(old.ID)
	check("one paused", []string{young.ID}, []string{old.ID})
	r.Advance(time.Second)
	if _, err := r.Resume(t.Context(), old.ID, lifecycle.ResumeOptions{Lifetime: time.Hour}); err != nil {
		t.Fatal(err)
	}
	check("resumed, and thus the newest", []string{old.ID, young.ID}, nil)
	f.Fake(young.ID).Die(errors.New("no envd"))
	check("the other one died", []string{old.ID}, nil)
	third := create(t, r, time.Hour)
	pause(third.ID)
	pause(old.ID)
	must.Do(t, r.Close())
	r = lifecycle.New(options)
	check("after a restart", nil, []string{third.ID, old.ID})
	must.Do(t, r.Kill(third.ID))
	check("killed", nil, []string{old.ID})
}

// TestPageBeginsAtTheLaterBound checks that a list begins at the later one of its two bounds.
func TestPageBeginsAtTheLaterBound(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var all []lifecycle.Sandbox
	for range 3 {
		all = append(all, s.get(t, s.create(t)))
		s.Advance(time.Second)
	}
	for _, tt := range []struct{ startedAfter, after, want int }{{1, 0, 1}, {0, 1, 2}, {1, 1, 2}} {
		q := lifecycle.Query{Running: true, Ascending: true, StartedAfter: all[tt.startedAfter].StartedAt, After: new(all[tt.after].Position())}
		if page := s.Page(q); len(page) != 3-tt.want || page[0].ID != all[tt.want].ID {
			t.Errorf("%+v: got %d sandboxes, want those from %d on", tt, len(page), tt.want)
		}
	}
}
