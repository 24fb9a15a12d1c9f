// Command bench measures what users wait for and prints a table of medians,
// with the number of runs and beside each the floor: what the same costs
// without us, measured in the same run.
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
	fmt.Fprintln(table, "what\tmedian\truns\tfloor\t")
	for _, row := range rows(client, command) {
		result, err := row.measure(ctx, row.runs*scale)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		floor := "-"
		if row.floor != nil {
			bare, err := median(ctx, row.runs*scale, row.floor)
			if err != nil {
				return fmt.Errorf("floor of %s: %w", row.name, err)
			}
			floor = fmt.Sprintf("%s, %s", format(bare), row.floorName)
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t\n", row.name, result, row.runs*scale, floor)
	}
	return table.Flush()
}
