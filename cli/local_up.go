package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// autoIdle is how long a local cloud that `create --local` started keeps
// running after its last sandbox has ended.
const autoIdle = 10 * time.Minute

type localUpOptions struct {
	Factory    *Factory
	Port       uint16
	Background bool
	Idle       durationValue
}

func newCmdLocalUp(f *Factory) *cobra.Command {
	opts := &localUpOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the local cloud",
		Long: `Run an E2B-compatible cloud on this machine until it is interrupted, and print
the variables that point any E2B SDK at it. It listens on 127.0.0.1 only and has
a fresh key. When it ends, by whatever signal, its sandboxes end with it.`,
		Example: `  e2bctl local up
  e2bctl local up --port 3999 -o json
  eval "$(e2bctl local up --background)"`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.Background {
				return localUpBackground(cmd.Context(), opts)
			}
			return localUpRun(cmd.Context(), opts)
		},
	}
	cmd.Flags().Uint16Var(&opts.Port, "port", 0, "listen on `PORT`; 0: any free one")
	cmd.Flags().BoolVar(&opts.Background, "background", false, "return once it is ready; end it with e2bctl local down")
	cmd.Flags().Var(&opts.Idle, "idle", "end by itself this long after its last sandbox")
	return cmd
}

func localUpRun(ctx context.Context, opts *localUpOptions) (err error) {
	f := opts.Factory
	place, err := findLocalPlace()
	if err != nil {
		return err
	}
	release, err := place.claim()
	if err != nil {
		return err
	}
	defer release()

	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(opts.Port)))
	cloud, err := local.Start(ctx, local.WithAddress(address), local.WithLogger(f.logger()))
	if err != nil {
		return err
	}
	defer closing(cloud, &err)
	record := localRecord{URL: cloud.URL(), Key: string(cloud.APIKey()), Isolation: string(cloud.Isolation()), Env: cloud.Env()}
	if err := place.publish(record); err != nil {
		return err
	}
	if err := record.announce(f); err != nil {
		return err
	}
	if !f.flags.quiet {
		fmt.Fprintf(f.IO.Err, "local cloud on %s, isolation: %s; Ctrl-C ends it and its sandboxes\n", record.URL, record.Isolation)
	}
	return opts.wait(ctx, cloud)
}

// announce writes to stdout that the cloud is ready: one line of JSON, or lines
// for a shell.
func (r localRecord) announce(f *Factory) error {
	if f.jsonOutput() {
		return json.NewEncoder(f.IO.Out).Encode(r)
	}
	return r.writeExports(f.IO.Out)
}

// wait returns when ctx ends, the cloud breaks or it has been idle for long
// enough. A cloud in the foreground normally ends by being told to stop, so
// that is not an error.
func (o *localUpOptions) wait(ctx context.Context, cloud *local.Cloud) (err error) {
	var tick <-chan time.Time
	idle := time.Duration(o.Idle)
	var client *sandbox.Client
	if idle > 0 {
		if client, err = sandbox.NewClient(cloud.Options()...); err != nil {
			return err
		}
		defer closing(client, &err)
		ticker := time.NewTicker(max(idle/20, 50*time.Millisecond))
		defer ticker.Stop()
		tick = ticker.C
	}
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-cloud.Done():
			return errors.New("the local cloud ended by itself; run it with -v to see why")
		case <-tick:
		}
		for _, err := range client.List(ctx, nil) {
			if err != nil {
				continue
			}
			last = time.Now()
			break
		}
		if time.Since(last) >= idle {
			return nil
		}
	}
}

// localUpBackground starts another process that runs the cloud.
func localUpBackground(ctx context.Context, opts *localUpOptions) error {
	place, err := findLocalPlace()
	if err != nil {
		return err
	}
	record, err := place.startBackground(ctx, opts.Port, time.Duration(opts.Idle))
	if err != nil {
		return err
	}
	if err := record.announce(opts.Factory); err != nil {
		return err
	}
	if !opts.Factory.flags.quiet {
		fmt.Fprintf(opts.Factory.IO.Err, "local cloud on %s, isolation: %s; e2bctl local down ends it\n", record.URL, record.Isolation)
	}
	return nil
}

// startBackground runs `local up` in a session of its own and returns when it
// is ready. Cancelling ctx before that ends the process.
func (p localPlace) startBackground(ctx context.Context, port uint16, idle time.Duration) (localRecord, error) {
	if pid, err := p.holder(); err != nil || pid != 0 {
		return localRecord{}, errors.Join(err, p.conflict())
	}
	program, err := os.Executable()
	if err != nil {
		return localRecord{}, err
	}
	args := []string{"local", "up", "--output", "json", "--port", strconv.Itoa(int(port))}
	if idle > 0 {
		args = append(args, "--idle", idle.String())
	}
	log, err := os.OpenFile(p.logFile(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return localRecord{}, err
	}
	defer log.Close()
	cmd := exec.Command(program, args...) //nolint:noctx // it outlives this command; startup is cancelled below
	cmd.Args[0] = os.Args[0]
	cmd.Dir = p.dir // it must not keep the current directory in use
	cmd.Stderr = log
	cmd.SysProcAttr = ownSession()
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return localRecord{}, err
	}
	if err := cmd.Start(); err != nil {
		return localRecord{}, fmt.Errorf("starting a local cloud in the background: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(os.Interrupt) })
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(ready, 1<<16)).ReadBytes('\n')
	if err != nil {
		_ = cmd.Wait()
		if ctx.Err() != nil {
			return localRecord{}, context.Cause(ctx)
		}
		return localRecord{}, fmt.Errorf("starting a local cloud in the background: %s", failureIn(log))
	}
	ready.Close()
	var record localRecord
	if err := json.Unmarshal(line, &record); err != nil {
		return localRecord{}, fmt.Errorf("reading what the local cloud says of itself: %w", err)
	}
	return record, cmd.Process.Release()
}

// failureIn returns why a `local up` failed: the error object in the last line
// of its log.
func failureIn(log *os.File) string {
	const tail = 4096
	info, err := log.Stat()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, min(tail, info.Size()))
	if _, err := log.ReadAt(text, info.Size()-int64(len(text))); err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	var last struct {
		Error struct{ Message string }
	}
	if err := json.Unmarshal(lines[len(lines)-1], &last); err == nil && last.Error.Message != "" {
		return strings.TrimPrefix(printable(last.Error.Message), "local up: ")
	}
	return "it ended without saying why; see " + log.Name()
}

// runningLocalCloud finds the user's local cloud. If none is running and start
// is set, it starts one and says so.
func (f *Factory) runningLocalCloud(ctx context.Context, start bool) (localRecord, error) {
	place, err := findLocalPlace()
	if err != nil {
		return localRecord{}, err
	}
	record, _, err := place.read()
	if !start || !errors.Is(err, errNoLocalCloud) {
		return record, err
	}
	if !f.flags.quiet {
		fmt.Fprintf(f.IO.Err, "starting a local cloud in the background; it ends %v after its last sandbox, or with e2bctl local down\n", autoIdle)
	}
	record, err = place.startBackground(ctx, 0, autoIdle)
	if err != nil {
		// Another command may have started one first.
		if other, _, readErr := place.read(); readErr == nil {
			return other, nil
		}
	}
	return record, err
}

// options point package sandbox at the recorded cloud.
func (r localRecord) options() []sandbox.Option {
	return []sandbox.Option{sandbox.WithAPIKey(api.Key(r.Key)), sandbox.WithAPIURL(r.URL), sandbox.WithSandboxURL(r.URL)}
}
