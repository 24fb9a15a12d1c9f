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

// Warm forks processes for a [Kernel] from a zygote. A forked process has the zygote's modules
// already loaded.
type Warm struct {
	// Fork returns the socket of a new process. If it returns an error, the kernel starts cold.
	Fork func(context.Context) (*os.File, error)
	// Environ is the environment of the zygote.
	Environ []string
}

// forkTimeout bounds the wait for the first message from a forked process. The time is long, because
// it is meant only for a process that hangs. On a machine so busy that many processes wait for a
// processor, cold starts would take even longer.
const forkTimeout = 20 * time.Second

// setup is the first message to a forked process. It follows descriptors 0 to 2.
type setup struct {
	Environ map[string]string `json:"environ"`
	Dir     string            `json:"dir"`
}

// fork makes the zygote fork the process p. If fork fails, it leaves no process and no open
// descriptor.
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
	err = within(ctx, conn, forkTimeout, func() error { return p.introduce(conn, environ, stdio) })
	if err != nil {
		// The process ends at the latest when it sees that the connection is closed.
		return errors.Join(err, conn.Close())
	}
	p.link, p.untouched = lines{conn}, true
	return nil
}

// introduce sends descriptors 0 to 2 and the setup to a forked process over conn. Then it adopts the
// forked process as p.
func (p *process) introduce(conn *net.UnixConn, environ []string, stdio []*os.File) error {
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
	// When the process sends its id, it is an orphan, and therefore a child of this process. It
	// has not run any user code yet.
	process, err := child.Adopt(forked.PID)
	if err != nil {
		return err
	}
	p.process, p.wait = process, func() error { return child.WaitAdopted(process) }
	return nil
}

// within calls do. During the call, reads and writes of conn end after limit or when ctx ends.
func within(ctx context.Context, conn interface{ SetDeadline(time.Time) error }, limit time.Duration, do func() error) error {
	_ = conn.SetDeadline(time.Now().Add(limit)) // fails only if closed, and then the reads fail, too
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := do(); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// readShortLine reads one line of JSON and decodes it into v. It reads no byte after the line.
func readShortLine(conn *net.UnixConn, v any) error {
	var line []byte
	for b := make([]byte, 1); len(line) < 64; {
		if _, err := conn.Read(b); err != nil {
			return fmt.Errorf("the forked process sent nothing: %w", err)
		}
		if b[0] == '\n' {
			return json.Unmarshal(line, v)
		}
		line = append(line, b[0])
	}
	return fmt.Errorf("%w: %q", errLine, line)
}

// atStart lists prefixes of variable names. Variables with such names take effect when a program
// starts or a library is loaded. In a forked process, they no longer take effect.
var atStart = []string{
	"PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "OPENBLAS_", "OMP_", "GOTO_", "MKL_", "BLIS_", "NPY_", "NUMPY_",
	"PANDAS_", "MPL", "MATPLOTLIB", "IPYTHON",
}

// fits reports whether a process forked from the zygote is equivalent to a process that is started
// cold with environ.
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

// fresh starts the process for a request that runs code. If a forked process has run no code
// yet, fresh compares its loaded modules with those of the sandbox. If the sandbox now has another
// version of a loaded module, fresh replaces the process by a cold process.
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

// changes returns the names of those modules that the process has loaded and that differ from the
// modules of the sandbox.
func (p *process) changes() []string {
	if err := p.send(&link.Command{Type: "check"}); err != nil {
		return []string{err.Error()}
	}
	select {
	case changed := <-p.checked:
		return changed
	case <-p.done:
		return nil // handled like an end at any other time
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
	default: // the process sent no answer
	}
	return nil
}
