package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type metricsOptions struct {
	IO     *cmdutil.IOStreams
	JSON   bool
	Open   cmdutil.Opener
	ID     string
	Since  since
	Follow bool
}

// NewCmdMetrics returns e2bctl metrics.
func NewCmdMetrics(f *cmdutil.Factory) *cobra.Command {
	opts := &metricsOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:     "metrics <id>",
		Aliases: []string{"stats"},
		Short:   "Show what a sandbox uses of processors, memory and disk",
		Long: `Show the latest sample of a sandbox's resource use, or all samples with --since. The
local cloud measures every 5 seconds while the sandbox runs, and forgets it with the
sandbox.`,
		Example: `  e2bctl metrics "$ID"
  e2bctl metrics -f "$ID"
  e2bctl metrics --since 1h -o json "$ID"`,
		Args: cmdutil.Wants("the ID of one sandbox", cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.ID = f.JSON(), args[0]
			if opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID); err != nil {
				return err
			}
			return metricsRun(cmd.Context(), opts)
		},
	}
	f.AddFollowFlag(cmd, &opts.Follow, "follow", "f", "go on until the sandbox has ended")
	cmd.Flags().Var(&opts.Since, "since", "all samples from that time on, or so long ago (10m)")
	f.AddOfficialFormat(cmd, "")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

// sampleEvery is the time between two samples.
const sampleEvery = 5 * time.Second

func metricsRun(ctx context.Context, opts *metricsOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	from := time.Time(opts.Since)
	samples, err := conn.Metrics(ctx, opts.ID, &sandbox.MetricsParams{From: from})
	if err != nil {
		return err
	}
	if from.IsZero() && len(samples) > 0 {
		samples = samples[len(samples)-1:]
	}
	if len(samples) == 0 && !opts.Follow && !opts.JSON {
		fmt.Fprintln(opts.IO.Err, "No metrics of that time.")
	}
	rows := &cmdutil.Rows{
		Out: opts.IO.Out, Width: opts.IO.OutWidth,
		Header: []string{"TIME", "CPU", "MEMORY", "DISK"}, Widths: []int{20, 12, 18},
	}
	out := &sampleWriter{rows: rows, asJSON: opts.JSON}
	if err := out.write(samples); err != nil || !opts.Follow {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(sampleEvery):
		}
		samples, err := conn.Metrics(ctx, opts.ID, &sandbox.MetricsParams{From: out.last})
		if errors.Is(err, sandbox.ErrGone) {
			return nil
		}
		if err == nil {
			err = out.write(samples)
		}
		if err != nil {
			return err
		}
	}
}

// sampleWriter writes samples as they come, each once.
type sampleWriter struct {
	rows   *cmdutil.Rows
	asJSON bool
	last   time.Time
}

func (s *sampleWriter) write(samples []sandbox.Usage) error {
	for _, u := range samples {
		if !u.Time.After(s.last) {
			continue
		}
		s.last = u.Time
		if err := s.writeSample(u); err != nil {
			return err
		}
	}
	return nil
}

func (s *sampleWriter) writeSample(u sandbox.Usage) error {
	if s.asJSON {
		return cmdutil.WriteJSONLine(s.rows.Out, u)
	}
	return s.rows.Write([]string{
		u.Time.UTC().Format(time.RFC3339), fmt.Sprintf("%.1f%% of %d", u.CPUPercent, u.CPUs),
		ofMiB(u.MemoryUsedBytes, u.MemoryTotalBytes), ofMiB(u.DiskUsedBytes, u.DiskTotalBytes),
	})
}

// ofMiB returns a text with the used part of the total. If total is 0, the value was not measured.
func ofMiB(used, total int64) string {
	if total == 0 {
		return "not known"
	}
	return fmt.Sprintf("%d of %d MiB", used>>20, total>>20)
}
