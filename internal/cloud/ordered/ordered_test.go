package ordered_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
)

// TestPages checks that pages contain every value once and in order, even if a page begins at the
// position of a value that was removed.
func TestPages(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, time.May, 1, 0, 0, 0, 0, time.UTC)
	looked := 0
	at := func(n int) ordered.Position {
		return ordered.Position{At: begin.Add(time.Duration(n/2) * time.Second), ID: strconv.Itoa(10 + n%2)} // two at a time
	}
	by := ordered.By[int](func(n int) ordered.Position { looked++; return at(n) })
	var all, want []int
	for _, n := range []int{5, 1, 0, 9, 7, 4, 8, 2, 6, 3, 5} {
		all = by.Put(all, n)
	}
	want = []int{8, 9, 6, 7, 4, 5, 2, 3, 0, 1}
	if got := by.Page(all, nil, 20, nil); !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	shuffled := []int{3, 9, 1, 0, 2, 8, 7, 6, 5, 4}
	if by.Sort(shuffled); !slices.Equal(shuffled, all) {
		t.Errorf("sorted: %v, want %v", shuffled, all)
	}
	for limit := 1; limit < 12; limit++ {
		for _, removed := range []bool{false, true} { // the last one of each page, before the next one is asked for
			left := slices.Clone(all)
			var got []int
			var after *ordered.Position
			for len(got) <= len(want) {
				page := by.Page(left, after, limit, nil)
				if len(page) == 0 {
					break
				}
				got = append(got, page...)
				after = new(at(page[len(page)-1]))
				if removed {
					left = by.Delete(left, *after)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("pages of %d, removed %v: got %v, want %v", limit, removed, got, want)
			}
		}
	}
	if got := by.Page(all, nil, 2, func(n int) bool { return n%2 == 0 }); !slices.Equal(got, []int{8, 6}) {
		t.Errorf("even ones: got %v", got)
	}
	for _, ascending := range []bool{false, true} {
		var got []int
		part := all
		for n, rest, ok := by.Next(part, ascending); ok; n, rest, ok = by.Next(part, ascending) {
			got, part = append(got, n), rest
			if after := by.After(all, new(at(n)), ascending); !slices.Equal(after, rest) {
				t.Errorf("after %d, ascending %v: got %v, want %v", n, ascending, after, rest)
			}
		}
		if ascending {
			slices.Reverse(got)
		}
		if !slices.Equal(got, want) {
			t.Errorf("one by one, ascending %v: got %v, want %v", ascending, got, want)
		}
	}
	all = nil
	for n := range 10_000 {
		all = by.Put(all, n)
	}
	looked = 0
	if page := by.Page(all, new(at(5000)), 10, nil); len(page) != 10 || looked > 20 {
		t.Errorf("%d values were looked at for a page of %d", looked, len(page))
	}
}

// TestAbsent checks that a position need not be that of a value.
func TestAbsent(t *testing.T) {
	t.Parallel()
	at := func(n int) ordered.Position { return ordered.Position{At: time.Unix(int64(n), 0)} }
	by := ordered.By[int](at)
	all := []int{1, 3, 5} // the list is 5, 3, 1
	if got := by.Delete(slices.Clone(all), at(4)); !slices.Equal(got, all) {
		t.Errorf("after Delete: got %v, want %v", got, all)
	}
	for _, test := range []struct {
		after     *ordered.Position
		ascending bool
		want      []int
	}{
		{nil, false, all},
		{nil, true, all},
		{new(at(4)), false, []int{1, 3}},
		{new(at(4)), true, []int{5}},
		{new(at(0)), false, nil},
		{new(at(6)), true, nil},
	} {
		if got := by.After(all, test.after, test.ascending); !slices.Equal(got, test.want) {
			t.Errorf("after %v, ascending %v: got %v, want %v", test.after, test.ascending, got, test.want)
		}
	}
	if got := by.Page(all, new(at(4)), 9, nil); !slices.Equal(got, []int{3, 1}) {
		t.Errorf("the page after 4: got %v, want [3 1]", got)
	}
	if _, rest, ok := by.Next(nil, false); ok || rest != nil {
		t.Errorf("the next of nothing: got %v, %v, want none", rest, ok)
	}
}

// TestPutAndDelete checks that a value takes the place of the one with its position, and that it alone is removed.
func TestPutAndDelete(t *testing.T) {
	t.Parallel()
	type value struct {
		at   int64
		text string
	}
	by := ordered.By[value](func(v value) ordered.Position { return ordered.Position{At: time.Unix(v.at, 0)} })
	all := []value{{1, "a"}, {3, "b"}, {5, "c"}}
	all = by.Put(all, value{3, "new"})
	if want := []value{{1, "a"}, {3, "new"}, {5, "c"}}; !slices.Equal(all, want) {
		t.Errorf("got %v, want %v", all, want)
	}
	all = by.Delete(all, ordered.Position{At: time.Unix(3, 0)})
	if want := []value{{1, "a"}, {5, "c"}}; !slices.Equal(all, want) {
		t.Errorf("after Delete: got %v, want %v", all, want)
	}
}
