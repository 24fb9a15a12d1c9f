package state_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/state"
)

var nanoseconds = map[string]int64{"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9, "D": 86400e9, "W": 7 * 86400e9}

// product returns a*b*c, which may be beyond 64 bits.
func product(a, b, c int64) *big.Int {
	x := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	return x.Mul(x, big.NewInt(c))
}

// length returns the nanoseconds of a duration or timedelta.
func length(x any) *big.Int {
	if d, ok := x.(time.Duration); ok {
		return big.NewInt(int64(d))
	}
	d := x.(state.Timedelta)
	us := product(d.Days, 86400, 1e6)
	us.Add(us, product(d.Seconds, 1, 1e6)).Add(us, big.NewInt(d.Microseconds))
	return us.Mul(us, big.NewInt(1000))
}

// TestTimesOfNumpy checks times and durations of each unit at the edges of 64 bits: none is another time or duration,
// and none that Python has is refused.
func TestTimesOfNumpy(t *testing.T) {
	t.Parallel()
	for unit, step := range nanoseconds {
		for _, multiple := range []int64{1, 25, 999_999_999} {
			edge := math.MaxInt64 / step / multiple
			for _, value := range []int64{0, 1, 7, edge - 1, edge, min(edge, math.MaxInt64-1) + 1, edge / 2 * 3, math.MaxInt64} {
				for _, value := range []int64{value, -value} {
					unit := unit
					if multiple > 1 {
						unit = fmt.Sprint(multiple, unit)
					}
					want := product(value, step, multiple)
					data := binary.LittleEndian.AppendUint64(nil, uint64(value))
					x, err := state.Scalar{Dtype: "<m8[" + unit + "]", Data: data}.Value()
					if err == nil && length(x).Cmp(want) != 0 {
						t.Errorf("timedelta64 of %d %s: got %v, want %d ns", value, unit, x, want)
					}
					if d, ok := x.(state.Timedelta); ok && (uint64(d.Seconds) >= 86400 || uint64(d.Microseconds) >= 1e6) { // neither is negative
						t.Errorf("timedelta64 of %d %s: got %+v, want seconds and microseconds as in Python", value, unit, d)
					}
					if err != nil && (want.IsInt64() || multiple == 1 && new(big.Int).Abs(want).Cmp(product(1e8, 86400, 1e9)) < 0) {
						t.Errorf("timedelta64 of %d %s: %v", value, unit, err)
					}
					at, err := state.Scalar{Dtype: "<M8[" + unit + "]", Data: data}.Value()
					if err != nil {
						if want.IsInt64() {
							t.Errorf("datetime64 of %d %s: %v", value, unit, err)
						}
						continue
					}
					got := product(at.(time.Time).Unix(), 1, 1e9)
					if got.Add(got, big.NewInt(int64(at.(time.Time).Nanosecond()))).Cmp(want) != 0 {
						t.Errorf("datetime64 of %d %s: got %v, want %d ns after 1970", value, unit, at, want)
					}
				}
			}
		}
	}
}

// TestDurationOfTimedelta checks the longest durations of both signs, and the shortest ones that Go does not have.
func TestDurationOfTimedelta(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt64 / 1000 // microseconds; the least is its negative
	all := []int64{0, 1, most - 1, most, most + 1, most + 86400e6, 2 * most, 999_999_999 * 86400e3}
	for _, us := range all {
		for _, us := range []int64{us, -us} {
			rest := (us%86400e6 + 86400e6) % 86400e6
			d := state.Timedelta{Days: (us - rest) / 86400e6, Seconds: rest / 1e6, Microseconds: rest % 1e6}
			got, ok := d.Duration()
			if want := us <= most && us >= -most; ok != want || ok && got != time.Duration(us)*time.Microsecond {
				t.Errorf("%+v: got %v and %v, want %d µs and %v", d, got, ok, us, want)
			}
			if ok && state.TimedeltaOf(got) != d {
				t.Errorf("%v: got %+v, want %+v", got, state.TimedeltaOf(got), d)
			}
		}
	}
	for _, days := range []int64{999_999_999, -999_999_999, 106_752, -106_753} {
		if got, ok := (state.Timedelta{Days: days}).Duration(); ok {
			t.Errorf("%d days: got %v, want none", days, got)
		}
	}
}

// TestKindOfFloats checks that a number has the same kind before and after it was sent.
func TestKindOfFloats(t *testing.T) {
	t.Parallel()
	for _, f := range []float64{0, math.Copysign(0, -1), 1, -1, 0.5, 1e15, 1e16, 1e17, 1e21, 1e22, 1e-5, 1e-7, math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(-1), math.NaN()} {
		made := mustValue(t, f)
		parsed, err := state.Parse(made.Bytes(), state.Bounds{})
		if err != nil || made.Kind() != state.KindFloat || parsed.Kind() != state.KindFloat {
			t.Errorf("%v: got the kinds %s and %s, and error %v, want floats", f, made.Kind(), parsed.Kind(), err)
		}
	}
}
