//go:build linux

// Command bench measures the times for which users wait, and prints a table. Beside each number is
// its floor, if there is one. The floor is the cost of the same work without this project, measured
// in the same run.
//
// With -readme the table replaces the table in the given file. With -history the results are kept,
// and -compare reports their changes. With -profile there are profiles of each row.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

func main() {
	var p plan
	flag.StringVar(&p.command, "e2bctl", "", "`path` of the e2bctl to measure, and to run in gVisor; without it, the rows of the command are left out, and gVisor runs this program")
	scale := flag.Float64("scale", 1, "`times` as many runs")
	wasm := flag.Bool("wasm", false, "measure sandboxes of WebAssembly, too, which \"e2bctl local setup --engine wasm\" prepares")
	gvisor := flag.Bool("gvisor", false, "measure sandboxes of gVisor, too, which \"e2bctl local setup --engine gvisor\" prepares")
	flag.StringVar(&p.only, "only", "", "measure the rows whose name contains this `text`")
	flag.BoolVar(&p.quick, "quick", false, "measure only the rows that tell most, in less than 90 seconds")
	flag.StringVar(&p.readme, "readme", "", "`file` to put the table into, too, such as internal/bench/README.md")
	flag.StringVar(&p.history, "history", "", "`directory` to write the results into, too, as lines of JSON in a new file")
	flag.StringVar(&p.commit, "commit", "", "`commit` that is measured, for -history")
	flag.StringVar(&p.profile, "profile", "", "`directory` to write profiles of each row's time into")
	compareIn := flag.String("compare", "", "instead, compare the newest results in this `directory` with those before them")
	serveAt := flag.String("serve", "", "instead, be the server of a row at this `address`")
	get := flag.String("get", "", "instead, be the client of a row and get this `URL`")
	through := flag.String("through", "", "`address` of a proxy for -get")
	runs := flag.Int("runs", 1, "`times` to get it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	switch {
	case *serveAt != "":
		err = serve(ctx, os.Stdout, *serveAt)
	case *get != "":
		err = getAgain(ctx, os.Stdout, *get, *through, *runs)
	case *compareIn != "":
		err = compare(os.Stdout, *compareIn)
	default:
		p.sizes = fullSizes(*scale)
		if *wasm {
			p.engines = append(p.engines, local.EngineWasm)
		}
		if *gvisor {
			p.engines = append(p.engines, local.EngineGVisor)
		}
		err = p.run(ctx, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// plan describes a run: the rows to measure, and the files to write besides the table.
type plan struct {
	sizes   sizes
	command string         // path of e2bctl, or ""
	engines []local.Engine // engines to measure besides the default one
	only    string         // measure only the rows whose name contains this text
	quick   bool           // measure only the rows of quickRows

	readme  string // file to put the table into, or ""
	history string // directory of the results, or ""
	commit  string
	profile string // directory of profiles, or ""
}

// has returns whether the plan contains a row.
func (p plan) has(r row) bool {
	return strings.Contains(r.name, p.only) && (!p.quick || r.isQuick())
}

// sizes are the amounts of work to measure.
type sizes struct {
	scale   float64       // multiplies the number of runs of each row
	pause   time.Duration // the time between sandboxes, enough for the cloud to have the next one ready
	quiet   time.Duration // the time without work after which the cloud has made ready what it can; 0 to begin at once
	bulk    int64         // number of bytes that the rows about throughput move
	crowd   int           // number of sandboxes that run at the same time
	storm   int           // number of commands that run at the same time
	prints  int           // number of printed lines
	errors  int           // number of cells that fail
	records int           // number of sandboxes in a list
}

func fullSizes(scale float64) sizes {
	return sizes{scale: scale, pause: time.Second / 2, quiet: time.Second, bulk: 256 << 20, crowd: 100, storm: 1500, prints: 1e6, errors: 1000, records: 10_000}
}

// bench has the values that the rows need for their measurements.
type bench struct {
	sizes
	cloud   *local.Cloud
	client  *sandbox.Client
	option  sandbox.ClientOption   // selects the field cloud, for rows that create their own client
	kind    []sandbox.CreateOption // the options for sandboxes, if they differ from the cloud's defaults
	engines []local.Engine         // engines to measure besides the default one
	egress  string                 // the field Egress of the cloud's Report
	origin  string                 // address of a server outside of the sandboxes
	proxy   string                 // address of a proxy that connects everything to origin
	command string                 // path of e2bctl; "": there is none
	images  string                 // directory from which images may be read; "" if no sandbox can start from an image
}

// run starts a local cloud and measures the rows one after the other, so that they
// do not disturb each other. If one row fails, run still measures the other rows.
func (p plan) run(ctx context.Context, w io.Writer) (err error) {
	origin := httptest.NewServer(answers(p.sizes.bulk))
	defer origin.Close()
	proxy := httptest.NewServer(leadTo(origin.Listener.Addr().String()))
	defer proxy.Close()
	// A sandbox cannot reach any address of this machine, so its connections leave
	// through a proxy of ours, as they do on a machine that needs a proxy.
	if err := os.Setenv("HTTPS_PROXY", proxy.URL); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cloud, err := local.Start(ctx, local.WithImageDir(dir), local.WithHostService(hostService, origin.Listener.Addr().String()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cloud.Close()) }()
	client, err := sandbox.NewClient(cloud.Option())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	b := &bench{
		sizes: p.sizes, cloud: cloud, client: client, option: cloud.Option(), egress: cloud.Report().Egress, command: p.command, engines: p.engines,
		origin: origin.Listener.Addr().String(), proxy: proxy.Listener.Addr().String(),
	}
	if cloud.Isolation() == local.Full {
		b.images = dir
	}
	return p.measure(ctx, w, b)
}

// measure measures the rows of the plan, and writes the results.
func (p plan) measure(ctx context.Context, w io.Writer, b *bench) error {
	var table bytes.Buffer
	out := io.MultiWriter(w, &table)
	now := newEnvironment(p.commit, b.cloud.Isolation())
	if err := settle(ctx, os.Stderr, p.sizes.quiet, processorTime); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, isolation: %s\n\n", machine(now), b.cloud.Isolation())
	fmt.Fprint(out, "| what | median | p95 | floor | ratio | elsewhere |\n| --- | --- | --- | --- | --- | --- |\n")
	var results []outcome
	var failed []error
	for _, row := range b.rows() {
		if ctx.Err() != nil {
			break
		}
		if !p.has(row) {
			continue
		}
		m, err := p.profiled(ctx, row, max(1, int(float64(row.runs)*p.sizes.scale)))
		if err != nil {
			failed = append(failed, err)
			continue
		}
		results = append(results, m)
		if err := m.print(out); err != nil {
			return err
		}
	}
	if p.history != "" {
		failed = append(failed, now.record(p.history, results))
	}
	if p.readme != "" && errors.Join(failed...) == nil {
		failed = append(failed, replace(p.readme, table.String()))
	}
	return errors.Join(append(failed, ctx.Err())...)
}

// machine returns a description of the time of the run, the machine and its load.
func machine(e environment) string {
	return fmt.Sprintf("%s, Linux %s/%s, %d CPUs, load at the start %.1f", e.Time.Format(time.DateOnly), e.Kernel, runtime.GOARCH, runtime.NumCPU(), e.Load)
}

// The lines of the README that enclose the table.
const begin, end = "<!-- numbers -->\n", "<!-- end of numbers -->\n"

// replace replaces the table between the lines begin and end in a file.
func replace(path, table string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(content), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no lines %q and %q to put the table between", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(path, []byte(before+begin+table+end+after), 0o644)
}
