// Package ordered keeps the values of a list in order: newest first, and values of the same time by
// id. The cost of a page depends only on the length of the page.
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

// Compare returns a negative number if p comes before q in lists, 0 if p and q are equal, and
// otherwise a positive number.
func (p Position) Compare(q Position) int {
	return cmp.Or(q.At.Compare(p.At), strings.Compare(p.ID, q.ID))
}

// By returns the position of a value. The methods of By work on slices that contain a list in
// reverse order: the first value of the list is the last element of the slice. So a new value is
// appended.
type By[T any] func(v T) Position

// Sort sorts a slice in the order that the other methods require.
func (by By[T]) Sort(all []T) {
	slices.SortFunc(all, func(a, b T) int { return by(b).Compare(by(a)) })
}

func (by By[T]) search(all []T, p Position) (int, bool) {
	return slices.BinarySearchFunc(all, p, func(v T, p Position) int { return p.Compare(by(v)) })
}

// Put inserts v into all and returns the result. v replaces a value with the same position.
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

// After returns the part of all that follows the position after. If after is nil, this is all. If
// ascending is set, the list is reversed. [By.Next] takes the values from the part, one by one.
func (by By[T]) After(all []T, after *Position, ascending bool) []T {
	if after == nil {
		return all
	}
	i, found := by.search(all, *after)
	switch {
	case !ascending:
		return all[:i]
	case found:
		i++
	}
	return all[i:]
}

// Next returns the first value of a part of a list, in its order, and the part without this value.
// If the part is empty, ok is false.
func (By[T]) Next(part []T, ascending bool) (v T, rest []T, ok bool) {
	switch end := len(part) - 1; {
	case end < 0:
		return v, nil, false
	case ascending:
		return part[0], part[1:], true
	default:
		return part[end], part[:end], true
	}
}

// Page returns at most limit matching values that follow the position after, in the order of the
// list. If after is nil, the page begins with the first value. A nil match matches all values. Page
// does not call match for the values after the last value that it returns.
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
