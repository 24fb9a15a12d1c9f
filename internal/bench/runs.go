//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"sync/atomic"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/state"
)

// runRows are the rows about runs.
func (b *bench) runRows() []row {
	size := b.bulk / 4
	half := &bench{sizes: sizes{bulk: size}}
	megabytes := func(what string) string { return half.megabytes("of state, floats in a list: " + what) }
	return []row{
		{
			name: "a tool of the host, called by code", runs: 20, measure: b.toolCalls(1),
			floor: pipedLines, floorName: "a line to Python through a pipe and back",
		},
		{
			name: "the same, 8 threads at once", runs: 10, measure: b.toolCalls(8),
			floor: pipedLines, floorName: "a line to Python through a pipe and back",
		},
		{
			name: megabytes("to a run"), runs: 3, measure: b.stateUp(size),
			floor: half.upload, floorName: "`net/http`, to nowhere",
		},
		{
			name: megabytes("what code made, pulled"), runs: 3, measure: b.stateDown(size),
			floor: half.download, floorName: "`net/http`",
		},
		{
			name: megabytes("a run begun again"), runs: 50, measure: b.begunAgain(size, nil),
			floor: b.inOne(onePlusOne), floorName: "`RunCode(\"1+1\")`",
		},
		{
			name: "a run begun again, its state and packages there", runs: 5, measure: b.begunAgain(0, nil, "numpy"),
			floor: b.inOne(onePlusOne), floorName: "`RunCode(\"1+1\")`",
		},
		{
			name: megabytes("set again, a run begun"), runs: 5, measure: b.begunAgain(size, setAgain),
			floor: hashed(size), floorName: "SHA-256 alone",
		},
		{
			name: "a run begun, 1 of 1,000 variables set", runs: 50, measure: b.begunAgain(0, setOne),
			floor: b.inOne(onePlusOne), floorName: "`RunCode(\"1+1\")`",
		},
		{
			name: "code that computes, under a guard", runs: 25, measure: b.inOne(computeWith(&agent.Guard{})),
			floor: b.inOne(computeWith(nil)), floorName: "without the guard",
		},
	}
}

// begun begins a run of code, calls do with the run, and closes it.
func begun(ctx context.Context, sb *sandbox.Sandbox, p *agent.Params, do func(*agent.Run) error) error {
	r, err := agent.Begin(ctx, sb, p)
	if err != nil {
		return err
	}
	return errors.Join(do(r), r.Close())
}

// step runs code as a step of a run. An exception in the code is an error.
func step(ctx context.Context, r *agent.Run, code string) (*agent.Step, error) {
	s, err := r.Exec(ctx, code)
	if err == nil && s.Error != nil {
		err = s.Error
	}
	return s, err
}

var add = agent.MustTool("add", "", func(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil })

// toolCalls measures one tool call while code makes many tool calls from several threads at the
// same time.
func (b *bench) toolCalls(threads int) measurement {
	const calls = 200 // per thread
	code := fmt.Sprintf("for i in range(%d): add(i, 1)", calls)
	if threads > 1 {
		code = fmt.Sprintf(`import threading
def work():
    for i in range(%d): add(i, 1)
threads = [threading.Thread(target=work) for _ in range(%d)]
for t in threads: t.start()
for t in threads: t.join()`, calls, threads)
	}
	return func(ctx context.Context, runs int) (r result, err error) {
		err = b.with(ctx, func(sb *sandbox.Sandbox) error {
			return begun(ctx, sb, &agent.Params{Tools: []agent.Tool{add}}, func(run *agent.Run) (err error) {
				r, err = repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
					s, err := step(ctx, run, code)
					if err != nil {
						return 0, err
					}
					return s.Duration / time.Duration(calls*threads), nil
				})
				return err
			})
		})
		return r, err
	}
}

// pipedLines measures a question and its answer between Python and this
// process.
func pipedLines(ctx context.Context, runs int) (_ result, err error) {
	python, err := local.FindPython(ctx)
	if err != nil {
		return result{}, err
	}
	cmd := exec.CommandContext(ctx, python.Path, "-c", "import sys\nfor line in sys.stdin:\n    sys.stdout.write(line)\n    sys.stdout.flush()")
	in, err := cmd.StdinPipe()
	if err != nil {
		return result{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return result{}, err
	}
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, in.Close(), cmd.Wait()) }()
	lines := bufio.NewReader(out)
	return calls(func(context.Context) error {
		if _, err := io.WriteString(in, `{"calls":[[1,"add"]],"waiting":[]}`+"\n"); err != nil {
			return err
		}
		_, err := lines.ReadString('\n')
		return err
	})(ctx, 100*runs)
}

// floats returns a list of floats of size bytes.
func floats(size int64) []float64 {
	list := make([]float64, size/8)
	for i := range list {
		list[i] = float64(i)
	}
	return list
}

// stateUp measures [agent.Begin] with a state variable that the sandbox does not have yet.
func (b *bench) stateUp(size int64) measurement {
	return func(ctx context.Context, runs int) (r result, err error) {
		list := floats(size)
		err = b.with(ctx, func(sb *sandbox.Sandbox) (err error) {
			r, err = repeat(ctx, runs, func(ctx context.Context) (took time.Duration, err error) {
				list[0]++
				st, err := stateOf("x", list)
				if err != nil {
					return 0, err
				}
				start := time.Now()
				err = begun(ctx, sb, &agent.Params{State: st}, func(*agent.Run) error {
					took = time.Since(start)
					return nil
				})
				return took, err
			})
			return err
		})
		return r, err
	}
}

// stateDown measures [agent.Run.Pull] of a value that code in the sandbox made.
func (b *bench) stateDown(size int64) measurement {
	return func(ctx context.Context, runs int) (r result, err error) {
		err = b.with(ctx, func(sb *sandbox.Sandbox) error {
			return begun(ctx, sb, nil, func(run *agent.Run) (err error) {
				n := 0
				r, err = repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
					n++
					if _, err := step(ctx, run, fmt.Sprintf("x = [float(i) for i in range(%d, %d)]", n, size/8+int64(n))); err != nil {
						return 0, err
					}
					st := state.New()
					start := time.Now()
					err := run.Pull(ctx, st)
					took := time.Since(start)
					if err == nil && len(st.Names()) != 1 {
						err = fmt.Errorf("%q were pulled", st.Names())
					}
					return took, err
				})
				return err
			})
		})
		return r, err
	}
}

// stateOf returns a state with one variable.
func stateOf(name string, v any) (*state.State, error) {
	st := state.New()
	return st, st.Set(name, v)
}

// setAgain and setOne change a state for [bench.begunAgain]. setAgain sets the variable to the value
// that the variable already has.
func setAgain(st *state.State, list []float64, _ int) error { return st.Set("x", list) }

func setOne(st *state.State, _ []float64, i int) error { return st.Set("v500", i) }

// begunAgain measures [agent.Begin] after change has changed the state. The sandbox already has the
// packages, and the state as it was before the change. begunAgain also counts the bytes that are
// sent.
func (b *bench) begunAgain(size int64, change func(st *state.State, list []float64, i int) error, packages ...string) measurement {
	return func(ctx context.Context, runs int) (r result, err error) {
		var sent atomic.Int64
		client, err := b.counting(&sent)
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, client.Close()) }()
		list := floats(size)
		st, err := stateOf("x", list)
		for i := range 1000 {
			err = errors.Join(err, st.Set(fmt.Sprintf("v%d", i), i))
		}
		if err != nil {
			return result{}, err
		}
		sb, err := client.Create(ctx)
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, sb.Close()) }()
		var bytes []int64
		i := 0
		r, err = repeat(ctx, runs+1, func(ctx context.Context) (took time.Duration, err error) {
			i++
			start := time.Now()
			if change != nil {
				if err := change(st, list, i); err != nil {
					return 0, err
				}
			}
			before := sent.Load()
			err = begun(ctx, sb, &agent.Params{State: st, Packages: packages, Tools: []agent.Tool{add}}, func(*agent.Run) error {
				took = time.Since(start)
				bytes = append(bytes, sent.Load()-before)
				return nil
			})
			return took, err
		})
		if err == nil {
			slices.Sort(bytes)
			r.notes = []string{fmt.Sprintf("%d bytes sent", bytes[len(bytes)/2])}
		}
		return r, err
	}
}

// counting returns a client that counts the bytes it sends.
func (b *bench) counting(sent *atomic.Int64) (*sandbox.Client, error) {
	var dialer net.Dialer
	return sandbox.NewClient(b.option, sandbox.WithTransport(&http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			return countedConn{conn, sent}, err
		},
	}))
}

type countedConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

// hashed measures the computation of a hash of size bytes.
func hashed(size int64) measurement {
	return func(ctx context.Context, runs int) (result, error) {
		data := make([]byte, size)
		return calls(func(context.Context) error { sha256.Sum256(data); return nil })(ctx, runs)
	}
}

// computeWith returns a call that runs a computation in a run with the guard g.
func computeWith(g *agent.Guard) call {
	const code = `import math
def sieve(n):
    flags = [True] * n
    for i in range(2, math.isqrt(n) + 1):
        if flags[i]:
            for j in range(i * i, n, i):
                flags[j] = False
    return sum(flags)
total = sum(math.sin(i) * math.sqrt(i) for i in range(200_000))
sieve(1_000_000)`
	return func(ctx context.Context, sb *sandbox.Sandbox) error {
		return begun(ctx, sb, &agent.Params{Guard: g}, func(r *agent.Run) error {
			_, err := step(ctx, r, code)
			return err
		})
	}
}
