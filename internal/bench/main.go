// Command bench measures what users wait for and prints a table of medians,
// with the number of runs and beside each the floor, where there is one: what
// the same costs without us, measured in the same run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

func main() {
	command := flag.String("e2bctl", "", "`path` of the e2bctl to measure; without it, that row is left out")
	scale := flag.Int("scale", 1, "`times` as many runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *command, *scale)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run starts a local cloud and measures the rows one after the other, so that
// none disturbs another.
func run(ctx context.Context, w io.Writer, command string, scale int) (err error) {
	cloud, err := local.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cloud.Close()) }()
	client, err := sandbox.NewClient(cloud.Options()...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	fmt.Fprintf(w, "%s, %s/%s, %d CPUs, isolation: %s\n\n", time.Now().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), cloud.Isolation())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "what\tmedian\truns\tfloor\tratio\t")
	for _, row := range rows(client, command) {
		if err := row.print(ctx, table, row.runs*scale); err != nil {
			return err
		}
	}
	return table.Flush()
}

// print measures a row and its floor, one after the other.
func (row row) print(ctx context.Context, w io.Writer, runs int) error {
	got, err := row.measure(ctx, runs)
	if err != nil {
		return fmt.Errorf("%s: %w", row.name, err)
	}
	ours, floor, ratio := row.format(got.median), "-", "-"
	if got.peak > 0 {
		ours += fmt.Sprintf(", peak %d MB", got.peak/1e6)
	}
	if row.floor != nil {
		bare, err := row.floor(ctx, runs)
		if err != nil {
			return fmt.Errorf("floor of %s: %w", row.name, err)
		}
		floor = fmt.Sprintf("%s, %s", row.format(bare), row.floorName)
		ratio = fmt.Sprintf("%.1f", float64(got.median)/float64(bare))
	}
	_, err = fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t\n", row.name, ours, runs, floor, ratio)
	return err
}

func (row row) format(d time.Duration) string {
	if row.bytes > 0 {
		return fmt.Sprintf("%.0f MB/s", float64(row.bytes)/1e6/d.Seconds())
	}
	return format(d)
}
