//go:build linux

package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// schedule runs the jobs that it receives from ready, at most atOnce at the same time. Of the
// received jobs, it runs the job with the lowest rank first. It returns when ready is closed and
// all jobs have run, or when ctx has ended.
func schedule(ctx context.Context, atOnce int, rank func(job) int, ready <-chan []job, run func(job)) {
	next := make(chan job)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for j := range next {
				run(j)
			}
		})
	}
	var waiting []job
	for ctx.Err() == nil && (ready != nil || len(waiting) > 0) {
		var to chan<- job
		var first job
		if len(waiting) > 0 {
			to, first = next, waiting[0]
		}
		select {
		case jobs, more := <-ready:
			if !more {
				ready = nil
			}
			waiting = append(waiting, jobs...)
			slices.SortStableFunc(waiting, func(a, b job) int { return cmp.Compare(rank(a), rank(b)) })
		case to <- first:
			waiting = waiting[1:]
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
}
