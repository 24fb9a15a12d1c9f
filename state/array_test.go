package state

import (
	"math"
	"testing"
)

// dtypeOf returns the dtype of an array of two elements.
func dtypeOf[T Number](t *testing.T) string {
	t.Helper()
	a, err := ArrayOf(make([]T, 2))
	if err != nil || len(a.Shape) != 1 || a.Shape[0] != 2 {
		t.Errorf("got %+v and error %v, want one dimension of 2", a, err)
	}
	return a.Dtype
}

// TestDtypesOfNumbers checks the order, kind and size of each type of number. It runs before the tests that
// take very long to tell which of many values differ.
func TestDtypesOfNumbers(t *testing.T) { //nolint:paralleltest // see above
	for want, got := range map[string]string{
		"|b1": dtypeOf[bool](t), "|i1": dtypeOf[int8](t), "<i2": dtypeOf[int16](t), "<i4": dtypeOf[int32](t), "<i8": dtypeOf[int64](t), "|u1": dtypeOf[uint8](t),
		"<u2": dtypeOf[uint16](t), "<u4": dtypeOf[uint32](t), "<u8": dtypeOf[uint64](t), "<f4": dtypeOf[float32](t), "<f8": dtypeOf[float64](t),
		"<c8": dtypeOf[complex64](t), "<c16": dtypeOf[complex128](t),
	} {
		if got != want {
			t.Errorf("got the dtype %s, want %s", got, want)
		}
	}
	if i, u := dtypeOf[int](t), dtypeOf[uint](t); i != "<i8" && i != "<i4" || u[2:] != i[2:] {
		t.Errorf("got the dtypes %s and %s of int and uint", i, u)
	}
}

// TestLengthsOfRanges checks the number of items at and beside each bound. It runs before the tests that
// would make a range of that length.
func TestLengthsOfRanges(t *testing.T) { //nolint:paralleltest // see above
	for r, want := range map[Range]int{
		{0, 10, 1}: 10, {0, 10, 3}: 4, {0, 9, 3}: 3, {1, 10, 3}: 3, {0, 0, 1}: 0, {1, 0, 1}: 0, {0, 1, 1}: 1, {0, 1, math.MaxInt64}: 1,
		{10, 0, -1}: 10, {10, 0, -3}: 4, {9, 0, -3}: 3, {0, 0, -1}: 0, {0, 1, -1}: 0, {1, 0, math.MinInt64}: 1, {0, 10, 0}: 0,
		{math.MinInt64, math.MaxInt64, 1}: math.MaxInt, {math.MaxInt64, math.MinInt64, -1}: math.MaxInt, {math.MinInt64, math.MaxInt64, 2}: math.MaxInt,
		{math.MinInt64, math.MaxInt64, math.MaxInt64}: 3, {math.MinInt64, math.MaxInt64, 4}: min(1<<62, math.MaxInt),
	} {
		if got := r.Len(); got != want {
			t.Errorf("%+v: got %d items, want %d", r, got, want)
		}
	}
}
