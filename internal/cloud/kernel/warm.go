//go:build linux

package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
)

// Warm is where a [Kernel] gets processes that have everything loaded: children
// of a zygote.
type Warm struct {
	// Fork gives the socket of a new one. An error says that there is none: the
	// kernel starts cold.
	Fork func(context.Context) (*os.File, error)
	// Environ is the environment that the zygote was started with.
	Environ []string
}

// forkTimeout bounds the wait for a forked process to speak. It is there for one
// that hangs: on a machine where many wait, cold ones would take longer still.
const forkTimeout = 20 * time.Second

// setup is the first that a forked process is told, after its descriptors 0 to 2.
type setup struct {
	Environ map[string]string `json:"environ"`
	Dir     string            `json:"dir"`
}

// fork makes p a process that the zygote forked. It fails without a trace.
func (p *process) fork(ctx context.Context, environ []string, stdio []*os.File) error {
	ctx, cancel := context.WithTimeout(ctx, forkTimeout)
	defer cancel()
	file, err := p.kernel.spec.Warm.Fork(ctx)
	if err != nil {
		return err
	}
	c, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return err
	}
	conn := c.(*net.UnixConn)
	if err := p.introduce(ctx, conn, environ, stdio); err != nil {
		// It ends when it sees that, if it does not do so already.
		return errors.Join(err, conn.Close())
	}
	p.link, p.untouched = lines{conn}, true
	return nil
}

func (p *process) introduce(ctx context.Context, conn *net.UnixConn, environ []string, stdio []*os.File) error {
	_ = conn.SetDeadline(time.Now().Add(forkTimeout)) // fails only when closed, and then so does the rest
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	fds := make([]int, len(stdio))
	for i, f := range stdio {
		fds[i] = int(f.Fd())
	}
	if _, _, err := conn.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil); err != nil {
		return err
	}
	line, err := json.Marshal(setup{Environ: link.Variables(environ), Dir: p.kernel.spec.Dir})
	if err != nil {
		return err
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return err
	}
	var forked struct {
		PID int `json:"pid"`
	}
	if err := readShortLine(conn, &forked); err != nil {
		return err
	}
	// It is an orphan, and so this process's own child, before it says so. It has
	// not run any code of a user's yet.
	process, err := child.Adopt(forked.PID)
	if err != nil {
		return err
	}
	p.process, p.wait = process, func() error { return child.WaitAdopted(process) }
	return conn.SetDeadline(time.Time{})
}

// readShortLine reads no byte more than the line.
func readShortLine(conn *net.UnixConn, v any) error {
	var line []byte
	for b := make([]byte, 1); len(line) < 64; {
		if _, err := conn.Read(b); err != nil {
			return fmt.Errorf("the forked process did not speak: %w", err)
		}
		if b[0] == '\n' {
			return json.Unmarshal(line, v)
		}
		line = append(line, b[0])
	}
	return fmt.Errorf("%w: %q", errLine, line)
}

// atStart are the beginnings of the names of variables that act when a program
// starts or a library is loaded. In a process that was forked they come too late.
var atStart = []string{
	"PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "OPENBLAS_", "OMP_", "GOTO_", "MKL_", "BLIS_", "NPY_", "NUMPY_",
	"PANDAS_", "MPL", "MATPLOTLIB", "IPYTHON",
}

// fits tells whether a process of the zygote is what one started with environ
// would be.
func (w *Warm) fits(environ []string) bool {
	return slices.Equal(startVariables(environ), startVariables(w.Environ))
}

func startVariables(environ []string) []string {
	var list []string
	for _, v := range environ {
		if slices.ContainsFunc(atStart, func(prefix string) bool { return strings.HasPrefix(v, prefix) }) {
			list = append(list, v)
		}
	}
	slices.Sort(list)
	return list
}

// fresh is Start for a request that runs code. A process that was forked and has
// run none yet is replaced by a cold one where a module that it has loaded is
// another one in the sandbox by now.
func (k *Kernel) fresh() (link.Info, error) {
	info, err := k.Start(k.ctx)
	k.mu.Lock()
	p := k.proc
	k.mu.Unlock()
	if err != nil || p == nil || !p.untouched {
		return info, err
	}
	p.untouched = false
	changed := p.changes()
	if len(changed) == 0 {
		return info, nil
	}
	k.spec.Logger.DebugContext(k.ctx, "kernel starts cold", "changed", changed)
	k.mu.Lock()
	k.cold, p.replaced, p.reason = true, true, Ended
	k.mu.Unlock()
	p.kill()
	<-p.done
	return k.Start(k.ctx)
}

// changes asks the process what differs from what it has loaded.
func (p *process) changes() []string {
	if err := p.send(&link.Command{Type: "check"}); err != nil {
		return []string{err.Error()}
	}
	select {
	case changed := <-p.checked:
		return changed
	case <-p.done:
		return nil // which is dealt with as at any other time
	}
}

func (p *process) handleChecked(m *link.Message) error {
	var answer struct {
		Changed []string `json:"changed"`
	}
	if err := json.Unmarshal(m.Content, &answer); err != nil {
		return fmt.Errorf("%w: checked: %w", errLine, err)
	}
	select {
	case p.checked <- answer.Changed:
	default: // nobody asked
	}
	return nil
}
