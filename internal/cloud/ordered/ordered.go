// Package ordered keeps what lists show in the order in which they show it, so that a page of
// a list costs no more than a page: newest first, and then by id.
package ordered

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Position is the place of a value in a list.
type Position struct {
	At time.Time
	ID string
}

// Compare returns a negative number if p comes before q, and 0 if they are the same.
func (p Position) Compare(q Position) int {
	return cmp.Or(q.At.Compare(p.At), strings.Compare(p.ID, q.ID))
}

// By says where a value is. Its methods are about slices that have values by their positions,
// the last one first: what is new is appended.
type By[T any] func(v T) Position

// Sort puts values in that order.
func (by By[T]) Sort(all []T) {
	slices.SortFunc(all, func(a, b T) int { return by(b).Compare(by(a)) })
}

func (by By[T]) search(all []T, p Position) (int, bool) {
	return slices.BinarySearchFunc(all, p, func(v T, p Position) int { return p.Compare(by(v)) })
}

// Put returns all with a value, in the place of the one that has its position.
func (by By[T]) Put(all []T, v T) []T {
	i, found := by.search(all, by(v))
	if found {
		all[i] = v
		return all
	}
	return slices.Insert(all, i, v)
}

// Delete returns all without the value at a position.
func (by By[T]) Delete(all []T, p Position) []T {
	if i, found := by.search(all, p); found {
		return slices.Delete(all, i, i+1)
	}
	return all
}

// Next returns the first value behind a position, or of all for nil; ascending is the exact
// reverse of the order. It reports false if there is none.
func (by By[T]) Next(all []T, after *Position, ascending bool) (v T, ok bool) {
	i, found := 0, false
	if after != nil {
		i, found = by.search(all, *after)
	} else if !ascending {
		i = len(all)
	}
	switch {
	case !ascending:
		i--
	case found:
		i++
	}
	if i < 0 || i >= len(all) {
		return v, false
	}
	return all[i], true
}

// Page returns the values behind a position, or from the first one on for nil, that match, in
// their order, and at most limit of them. It looks at none behind the last one that it returns.
// Without match all do.
func (by By[T]) Page(all []T, after *Position, limit int, match func(T) bool) []T {
	end := len(all)
	if after != nil {
		end, _ = by.search(all, *after)
	}
	var page []T
	for _, v := range slices.Backward(all[:end]) {
		if len(page) == limit {
			break
		}
		if match == nil || match(v) {
			page = append(page, v)
		}
	}
	return page
}
