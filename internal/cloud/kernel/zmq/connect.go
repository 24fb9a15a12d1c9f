//go:build linux

package zmq

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// freePorts finds n ports on which no process listens. The ports are below the range for outgoing
// connections, because in that range, a connection to a port without a listener could get the same
// port as its own, and so be connected to itself.
func freePorts(ctx context.Context, n int) ([]int, error) {
	const low, high, tries = 20000, 32000, 1000
	var ports []int
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	var last error
	for range tries {
		if len(ports) == n {
			return ports, nil
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(low+mathrand.IntN(high-low)))
		if err != nil {
			last = err
			continue
		}
		listeners = append(listeners, listener)
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return nil, fmt.Errorf("no free port on 127.0.0.1: %w", last)
}

func (l *Link) readChannel(ctx context.Context, channel string) error {
	conn, err := l.connect(ctx, channel)
	if err != nil {
		return nil // the process has ended or will not become ready; other code detects both
	}
	if channel == jupyter.Shell {
		defer l.introduce(ctx)()
	}
	for {
		parts, err := conn.readMessage()
		if errors.Is(err, errZMTP) {
			return fmt.Errorf("%s: %w", channel, err)
		}
		if err != nil {
			return nil
		}
		m, err := l.open(parts)
		if err != nil {
			return fmt.Errorf("%s: %w", channel, err)
		}
		m.Channel = channel
		if err := l.hear(m); err != nil {
			return err
		}
	}
}

// connect connects to a channel of the kernel. It retries until the kernel listens or ctx ends.
func (l *Link) connect(ctx context.Context, channel string) (*zmtp, error) {
	address := "127.0.0.1:" + strconv.Itoa(l.ports[channel])
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		conn, err := l.dial(ctx, address, channel)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-ticker.C:
		}
	}
}

func (l *Link) dial(ctx context.Context, address, channel string) (*zmtp, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	// All sockets have the same identity, because a kernel sends its questions on stdin to the
	// identity that sent the request on shell.
	z, err := openZMTP(conn, jupyterChannels[channel], l.session)
	if err == nil && channel == jupyter.IOPub {
		err = z.writeMessage([]byte{1}) // subscribe to everything
	}
	if !stop() || err != nil {
		conn.Close()
		return nil, errors.Join(err, ctx.Err())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[channel] = z
	if l.ctx.Err() != nil { // Ended was called before
		_ = conn.SetReadDeadline(time.Now())
	}
	return z, nil
}

// introduce repeatedly requests the kernel_info of the kernel. It stops when the kernel is ready or
// when the returned function is called.
func (l *Link) introduce(ctx context.Context) func() {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		ticker := time.NewTicker(nudge)
		defer ticker.Stop()
		for {
			l.order.Lock()
			ready := l.ready
			l.order.Unlock()
			header := jupyter.NewHeader("kernel_info_request", l.session, "e2b")
			if ready || l.write(jupyter.Shell, &jupyter.Message{Header: header}) != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	return func() {
		cancel()
		asking.Wait()
	}
}
