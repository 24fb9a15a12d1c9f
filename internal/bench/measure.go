//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// measurement is a function that runs an operation the given number of times and returns the
// result.
type measurement func(ctx context.Context, runs int) (result, error)

// result is the result of a measurement.
type result struct {
	took  []time.Duration // the time of each run, sorted
	bytes int64           // bytes that each run moved; 0 unless the row is about throughput
	// the measured memory, in bytes; 0 unless the row is about memory, and then there are no runs
	size  int64
	notes []string
}

func (r result) median() time.Duration { return r.percentile(50) }

func (r result) percentile(p int) time.Duration { return r.took[min(len(r.took)*p/100, len(r.took)-1)] }

// value returns the number by which results are compared. A smaller number is better.
func (r result) value() float64 {
	if r.size > 0 {
		return float64(r.size)
	}
	return float64(r.median())
}

func (r result) String() string {
	text := ""
	switch {
	case r.size > 0:
		text = fmt.Sprintf("%.1f MB", float64(r.size)/1e6)
	case r.bytes > 0:
		text = fmt.Sprintf("%.0f MB/s", float64(r.bytes)/1e6/r.median().Seconds())
	default:
		text = format(r.median())
	}
	return strings.Join(append([]string{text}, r.notes...), ", ")
}

func format(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", float64(d)/float64(time.Microsecond))
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// A row that takes longer than rowTime is measured with fewer runs, so that a slow machine measures all
// rows in a few minutes. fewest is the least number of its runs, and of the parts of its measurement.
const (
	rowTime = 4 * time.Second
	fewest  = 2
)

// repeat calls timed once to warm up, and does not count this call. It then calls timed runs times, or
// until rowTime has passed. timed returns the part of its duration that counts.
func repeat(ctx context.Context, runs int, timed func(context.Context) (time.Duration, error)) (result, error) {
	if _, err := timed(ctx); err != nil {
		return result{}, err
	}
	var took []time.Duration
	for begin := time.Now(); len(took) < runs && (len(took) < fewest || time.Since(begin) < rowTime); {
		one, err := timed(ctx)
		if err != nil {
			return result{}, err
		}
		took = append(took, one)
	}
	slices.Sort(took)
	return result{took: took}, nil
}

// whole returns a function for [repeat] that counts the whole duration of call.
func whole(call func(context.Context) error) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		start := time.Now()
		err := call(ctx)
		return time.Since(start), err
	}
}

// calls returns a measurement of the duration of call.
func calls(call func(context.Context) error) measurement {
	return func(ctx context.Context, runs int) (result, error) { return repeat(ctx, runs, whole(call)) }
}

// moving returns a measurement in which each run moves n bytes. It also measures the peak memory of
// this process, which is both client and server.
func moving(n int64, measure measurement) measurement {
	return func(ctx context.Context, runs int) (result, error) {
		if err := resetPeak(); err != nil {
			return result{}, err
		}
		r, err := measure(ctx, runs)
		if err != nil {
			return r, err
		}
		most, err := peak("self")
		r.bytes = n
		r.notes = slices.Insert(r.notes, 0, fmt.Sprintf("peak %d MB", most/1e6))
		return r, err
	}
}

// rounds is the number of parts of the measurement of a row. The parts of the row and of its floor
// alternate, so that a machine that is slow for a while affects both.
const rounds = 5

// outcome is a row together with its results.
type outcome struct {
	row       row
	got, bare result
	// parts and floors are the values of the row, and of its floor, in each part of the measurement.
	// Their spread shows how much the machine's other work disturbs.
	parts, floors []float64
	took          time.Duration // the time that the whole measurement took
}

// inTurns measures a row and its floor; the floor may be nil.
func (row row) inTurns(ctx context.Context, runs int) (outcome, error) {
	start := time.Now()
	m := outcome{row: row}
	parts := 1
	if row.floor != nil && runs >= rounds {
		parts = rounds
	}
	for i := range parts {
		n := runs*(i+1)/parts - runs*i/parts
		one, err := row.measure(ctx, n)
		if err != nil {
			return m, fmt.Errorf("%s: %w", row.name, err)
		}
		m.got = m.got.with(one)
		m.parts = append(m.parts, one.value())
		if row.floor == nil {
			continue
		}
		if one, err = row.floor(ctx, n); err != nil {
			return m, fmt.Errorf("floor of %s: %w", row.name, err)
		}
		m.bare = m.bare.with(one)
		m.floors = append(m.floors, one.value())
		part := time.Since(start) / time.Duration(i+1)
		if i+1 >= fewest && time.Since(start)+part > rowTime {
			break
		}
	}
	m.took = time.Since(start)
	return m, nil
}

// with returns r together with the runs of other, another result of the same measurement.
func (r result) with(other result) result {
	other.took = append(slices.Clone(r.took), other.took...)
	slices.Sort(other.took)
	return other
}

// print writes m as a line of the table.
func (m outcome) print(w io.Writer) error {
	var p95, floor, ratio string
	if len(m.got.took) >= 20 {
		p95 = format(m.got.percentile(95))
	}
	if m.row.floor != nil {
		floor = fmt.Sprintf("%s, %s", m.bare, m.row.floorName)
		ratio = fmt.Sprintf("%.1f", m.got.value()/m.bare.value())
	}
	_, err := fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", m.row.name, m.got, p95, floor, ratio, m.row.elsewhere)
	return err
}
