//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// dialHost connects to a port of the host: a sandbox without namespaces shares the host's ports.
func dialHost(ctx context.Context, port uint16) (*net.TCPConn, error) {
	conn, err := link.DialLoopback(ctx, port)
	if err != nil {
		return nil, closedPort(err)
	}
	return conn, nil
}

// closedPort replaces errors that mean a closed port by [engine.ErrPortClosed].
func closedPort(err error) error {
	for _, closed := range []error{syscall.ECONNREFUSED, syscall.EADDRNOTAVAIL, syscall.ENETUNREACH, syscall.EAFNOSUPPORT} {
		if errors.Is(err, closed) {
			return engine.ErrPortClosed
		}
	}
	return err
}

// dialNetwork connects to a port of the loopback of the sandbox's network namespace.
func (s *Sandbox) dialNetwork(ctx context.Context, port uint16) (*net.TCPConn, error) {
	if err := s.room.process.control.Send(wire.Message{Kind: wire.KindSockets, ID: s.number}); err != nil {
		return nil, fmt.Errorf("ask the room for sockets: %w", err)
	}
	var made sockets
	select {
	case made = <-s.traffic.sockets: // maybe those requested for another connection, which will do as well
	case <-s.process.exited: // the room sends no more
		s.dropSockets()
		return nil, engine.ErrGone
	}
	defer wire.CloseAll(made.files)
	err := made.err
	loopback := []unix.Sockaddr{
		&unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}},
		&unix.SockaddrInet6{Port: int(port), Addr: [16]byte{15: 1}},
	}
	for i, f := range made.files {
		if err = connect(ctx, f, loopback[i]); err == nil {
			return tcpConn(f)
		}
	}
	return nil, closedPort(err)
}

// giveSockets passes the room's sockets to a waiting dialNetwork.
func (s *Sandbox) giveSockets(m wire.Message, files *wire.Files) {
	made := sockets{files: files.TakeList(wire.FileSocket)}
	if m.Error != "" || len(made.files) == 0 {
		made.err = fmt.Errorf("the room gave no sockets: %s", m.Error)
	}
	select {
	case <-s.process.exited: // there is no waiting call
		wire.CloseAll(made.files)
		return
	default:
	}
	select {
	case s.traffic.sockets <- made:
	default: // there was no request
		wire.CloseAll(made.files)
	}
}

// dropSockets closes sockets for which no call waits.
func (s *Sandbox) dropSockets() {
	for {
		select {
		case made := <-s.traffic.sockets:
			wire.CloseAll(made.files)
		default:
			return
		}
	}
}

// connect connects a non-blocking socket.
func connect(ctx context.Context, socket *os.File, to unix.Sockaddr) error {
	raw, err := socket.SyscallConn()
	if err == nil {
		err = socket.SetWriteDeadline(time.Now().Add(link.DialTimeout))
	}
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = socket.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	wait := raw.Write(func(fd uintptr) bool {
		err = os.NewSyscallError("connect", unix.Connect(int(fd), to))
		return !errors.Is(err, syscall.EINPROGRESS) && !errors.Is(err, syscall.EALREADY) && !errors.Is(err, syscall.EINTR)
	})
	if wait != nil {
		return wait
	}
	if errors.Is(err, syscall.EISCONN) {
		return nil
	}
	return err
}

// tcpConn returns a new connection for a connected socket.
func tcpConn(socket *os.File) (*net.TCPConn, error) {
	conn, err := net.FileConn(socket)
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(errors.New("the room's socket is not one of TCP"), conn.Close())
	}
	return tcp, nil
}
