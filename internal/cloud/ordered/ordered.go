// Package ordered keeps the values of a list in the order of the list, newest first and then by
// id, so that a page costs no more than its own length.
package ordered

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Position is the position of a value in a list.
type Position struct {
	At time.Time
	ID string
}

// Compare returns a negative number if p comes before q, and 0 if they are the same.
func (p Position) Compare(q Position) int {
	return cmp.Or(q.At.Compare(p.At), strings.Compare(p.ID, q.ID))
}

// By returns the position of a value. Its methods work on slices in reverse order of position:
// the first value of the list is last, so that a new value is appended.
type By[T any] func(v T) Position

// Sort sorts values into that order.
func (by By[T]) Sort(all []T) {
	slices.SortFunc(all, func(a, b T) int { return by(b).Compare(by(a)) })
}

func (by By[T]) search(all []T, p Position) (int, bool) {
	return slices.BinarySearchFunc(all, p, func(v T, p Position) int { return p.Compare(by(v)) })
}

// Put returns all with v in it, which replaces a value of the same position.
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

// Next returns the value after a position. A nil position means the beginning of the list. If
// ascending is set, the list is reversed. Next reports false if there is no such value.
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

// Page returns at most limit matching values after a position, in the order of the list. A nil
// position means the beginning of the list; a nil match matches all values. Page looks at no
// value behind the last one that it returns.
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
