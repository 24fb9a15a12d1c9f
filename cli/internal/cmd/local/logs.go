package local

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
)

type logsOptions struct {
	IO     *cmdutil.IOStreams
	State  string
	Follow bool
	Tail   int
}

func newCmdLogs(f *cmdutil.Factory) *cobra.Command {
	opts := &logsOptions{IO: f.IO}
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show the log of a local cloud in the background",
		Long: `Show the log of the local cloud in the background, or, if none runs, of the last one.
The log is a file that only this user can read; e2bctl local status names it. It has at most
64 MiB, and starts anew with each local cloud. A local cloud in the foreground has no log:
with -v its terminal shows the same lines. e2bctl logs shows the log of a sandbox.

-f goes on until that local cloud ends.`,
		Example: `  e2bctl local logs -n 20
  e2bctl local logs -f`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if opts.Tail < 0 {
				return cmdutil.Usagef(cmd, "--tail %d: want a number of lines, or 0 for all", opts.Tail)
			}
			if opts.State, err = absolute(opts.State); err != nil {
				return err
			}
			return logsRun(cmd.Context(), opts)
		},
	}
	addStateDir(cmd, &opts.State)
	f.AddFollowFlag(cmd, &opts.Follow, "follow", "f", "go on until the local cloud has ended")
	cmd.Flags().IntVarP(&opts.Tail, "tail", "n", 0, "only the last `N` lines so far; 0: all")
	return cmd
}

func logsRun(ctx context.Context, opts *logsOptions) error {
	path, ended, err := localcloud.LogFile(opts.State)
	if err != nil {
		return err
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &localcloud.NoLogError{}
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if opts.Tail > 0 {
		if err := seekLines(file, opts.Tail); err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
	}
	lines := &logLines{from: bufio.NewReader(file), to: opts.IO.Out}
	for {
		isLast := !opts.Follow || ended() // before the rest is read: nothing comes after it
		if err := lines.copy(isLast); err != nil || isLast {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(logPause):
		}
	}
}

// logPause is the interval between checks for new lines.
const logPause = 200 * time.Millisecond

// logLines copies lines of a log and makes them printable, because parts of a line may come from a
// sandbox.
type logLines struct {
	from *bufio.Reader
	to   io.Writer
	part []byte // the first bytes of a line whose end has not arrived
}

// copy copies the lines that have arrived. With isLast it also copies a last line without a newline.
func (l *logLines) copy(isLast bool) error {
	for {
		text, err := l.from.ReadSlice('\n')
		l.part = append(l.part, text...)
		if err == nil || errors.Is(err, io.EOF) && isLast && len(l.part) > 0 {
			line := cmdutil.Printable(string(bytes.TrimSuffix(l.part, []byte("\n"))))
			l.part = l.part[:0]
			if _, err := fmt.Fprintln(l.to, line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// seekLines sets a file's read position to the beginning of its last lines. The argument lines is
// their number.
func seekLines(file *os.File, lines int) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	block := make([]byte, 64<<10)
	at, isEnd := info.Size(), true
	for at > 0 {
		n := min(int64(len(block)), at)
		at -= n
		if _, err := file.ReadAt(block[:n], at); err != nil {
			return err
		}
		for i := n - 1; i >= 0; i-- {
			if block[i] == '\n' && !isEnd {
				if lines--; lines == 0 {
					_, err := file.Seek(at+i+1, io.SeekStart)
					return err
				}
			}
			isEnd = false // the newline that ends the last line begins no other
		}
	}
	return nil
}
