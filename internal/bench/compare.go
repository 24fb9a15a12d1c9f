//go:build linux

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// compare prints the rows of the newest run in a directory that changed since they were last
// measured on the same kind of machine. A row changed if the difference is larger than the error
// bar, which is the spread of the parts of both runs.
func compare(w io.Writer, dir string) error {
	records, err := readHistory(dir)
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return fmt.Errorf("no results in %s: make bench writes them", dir)
	}
	newest := records[len(records)-1].environment
	fmt.Fprintf(w, "%s of %s, load %.1f, on %s\n\n", commit(newest), newest.Time.Format(time.DateTime), newest.Load, newest.Machine)
	fmt.Fprint(w, "| what | before | of | now | change | error bar |\n| --- | --- | --- | --- | --- | --- |\n")
	var same, first int
	for _, now := range records {
		if !now.Time.Equal(newest.Time) {
			continue
		}
		before, found := lastBefore(records, now)
		if !found {
			first++
			continue
		}
		change := now.ratio()/before.ratio() - 1
		bar := errorBar(records, now) + errorBar(records, before)
		if math.Abs(change) <= bar {
			same++
			continue
		}
		fmt.Fprintf(w, "| %s | %s | %s, %s | %s | %+.0f %% | ±%.0f %% |\n", now.Row, before, commit(before.environment), before.Time.Format(time.DateOnly), now, 100*change, 100*bar)
	}
	fmt.Fprintf(w, "\n%d rows did not change by more than their error bar, %d were not measured before on such a machine.\n", same, first)
	return nil
}

func commit(e environment) string {
	if e.Commit == "" {
		return "an unknown commit"
	}
	return e.Commit
}

// lastBefore returns the last result of the same row on the same kind of machine. A floor of
// another name is another row.
func lastBefore(records []record, now record) (record, bool) {
	for _, r := range slices.Backward(records) {
		if r.Time.Before(now.Time) && r.Machine == now.Machine && r.Row == now.Row && r.FloorName == now.FloorName {
			return r, true
		}
	}
	return record{}, false
}

// ratio returns the number that is compared: the ratio to the floor or, without a floor, the value
// itself.
func (r record) ratio() float64 {
	if r.Floor == 0 {
		return r.Value
	}
	return r.Value / r.Floor
}

// String returns the ratio of a row with a floor, and otherwise the value.
func (r record) String() string {
	switch {
	case r.Floor > 0:
		return fmt.Sprintf("%.2f times", r.ratio())
	case r.Unit == bytesUnit:
		return fmt.Sprintf("%.1f MB", r.Value/1e6)
	}
	return format(time.Duration(r.Value))
}

// errorBar returns the error bar of a result as a fraction: how far its repeated measurements, or
// those of its floor, are apart, half of the span divided by the median. A result that was not
// measured several times has the largest error bar of its run.
func errorBar(records []record, r record) float64 {
	if len(r.FloorParts) > 1 {
		return r.spread()
	}
	largest := 0.0
	for _, other := range records {
		if other.Time.Equal(r.Time) && len(other.FloorParts) > 1 {
			largest = max(largest, other.spread())
		}
	}
	return largest
}

func (r record) spread() float64 { return max(spread(r.Parts), spread(r.FloorParts)) }

func spread(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[len(sorted)-1] - sorted[0]) / 2 / sorted[len(sorted)/2]
}
