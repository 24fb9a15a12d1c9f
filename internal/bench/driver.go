//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	pydriver "github.com/e2bctl/e2bctl/internal/cloud/kernel/python"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// driver is the program that executes code in kernels. Here it runs on the host, with the Python of
// sandboxes, and is controlled over its socket. It shows the cost of code without a sandbox.
type driver struct {
	cmd       *exec.Cmd
	directory string
	socket    net.Conn
	lines     *bufio.Reader
	asked     int
}

func startDriver(ctx context.Context) (_ *driver, err error) {
	python, err := local.FindPython(ctx)
	if err != nil {
		return nil, err
	}
	d := &driver{}
	if d.directory, err = os.MkdirTemp("", "bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(d.directory))
		}
	}()
	script, err := pydriver.WriteDriver(d.directory)
	if err != nil {
		return nil, err
	}
	socket, theirs, err := child.SocketPair()
	if err != nil {
		return nil, err
	}
	d.socket = socket
	d.lines = bufio.NewReaderSize(d.socket, 1<<20)
	d.cmd = exec.CommandContext(ctx, python.Path, script)
	d.cmd.Env = append(os.Environ(), "E2BCTL_KERNEL_DIRECTORY="+d.directory)
	d.cmd.ExtraFiles = []*os.File{theirs}
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = d.cmd.Start()
	theirs.Close() // so that this process notices its end
	if err != nil {
		return nil, errors.Join(err, d.socket.Close())
	}
	if _, err = d.until("ready"); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// run runs a cell and returns its reply.
func (d *driver) run(code string) (reply []byte, err error) {
	d.asked++
	line, err := json.Marshal(map[string]any{"type": "execute_request", "id": d.asked, "content": map[string]any{"code": code}})
	if err != nil {
		return nil, err
	}
	if _, err := d.socket.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	return d.until("reply")
}

// until reads lines up to the first line of a kind, and returns that line. None of the cells in
// this benchmark prints a line that is longer than the buffer.
func (d *driver) until(kind string) ([]byte, error) {
	for want := []byte(`{"type":"` + kind + `"`); ; {
		line, err := d.lines.ReadSlice('\n')
		if err != nil || bytes.HasPrefix(line, want) {
			return line, err
		}
	}
}

func (d *driver) close() error {
	err := d.socket.Close() // this ends the driver
	_ = d.cmd.Wait()        // its status does not matter
	return errors.Join(err, os.RemoveAll(d.directory))
}

// driverStart measures the time from the start of a driver to the end of its
// first cell.
func driverStart(code string) measurement {
	return func(ctx context.Context, runs int) (result, error) {
		return repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
			start := time.Now()
			d, err := startDriver(ctx)
			if err != nil {
				return 0, err
			}
			err = d.succeed(code)
			took := time.Since(start)
			return took, errors.Join(err, d.close())
		})
	}
}

// driverRuns starts a driver and measures calls of do with it.
func driverRuns(do func(*driver) error) measurement {
	return func(ctx context.Context, runs int) (_ result, err error) {
		d, err := startDriver(ctx)
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, d.close()) }()
		return calls(func(context.Context) error { return do(d) })(ctx, runs)
	}
}

// cell measures running a cell.
func cell(code string) measurement {
	return driverRuns(func(d *driver) error { return d.succeed(code) })
}

func (d *driver) succeed(code string) error {
	reply, err := d.run(code)
	if err == nil && !bytes.Contains(reply, []byte(`"status":"ok"`)) {
		err = fmt.Errorf("%q failed on the host: %.200s", code, reply)
	}
	return err
}

// errors runs the given number of pairs of cells. In each pair, the first cell fails and the second
// one succeeds.
func (d *driver) errors(pairs int) error {
	for range pairs {
		if _, err := d.run(failing); err != nil {
			return err
		}
		if err := d.succeed(adding); err != nil {
			return err
		}
	}
	return nil
}
