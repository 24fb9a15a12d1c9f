//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// serve answers envd until it ends. Nothing that envd says is trusted.
func (s *Sandbox) serve() {
	for {
		m, _, err := s.envd.Receive(0)
		failed := err == nil && m.Kind == wire.KindFailed
		if failed {
			err = fmt.Errorf("envd ended: %.*s", wire.MaxErrorText, m.Error)
		}
		if err == nil {
			err = s.answer(m)
		}
		if err == nil {
			continue
		}
		if failed || errors.Is(err, wire.ErrProtocol) {
			s.fail(err)
			s.room.killProcess(s) // envd may say that it ended, and go on
		}
		<-s.exited
		s.fail(s.causeOfDeath())
		go func() { _ = s.close() }() // in the background, because it waits for this function
		return
	}
}

func (s *Sandbox) answer(m wire.Message) error {
	if m.Kind == wire.KindLog {
		if s.options.Tell != nil {
			s.options.Tell(m.Spec)
		}
		return nil
	}
	if s.room.runsc != nil && (m.Kind == wire.KindStop || m.Kind == wire.KindSaveMemory || m.Kind == wire.KindGoOn) {
		select {
		case s.pause.answers <- m:
			return nil
		default: // nobody asked
		}
	}
	if m.Kind == wire.KindKernel && m.ID != 0 {
		return s.giveKernel(m.ID)
	}
	if m.Kind == wire.KindTerminal && m.ID != 0 && s.room.level == engine.Restricted {
		return s.giveTerminal(m.ID)
	}
	if m.Kind != wire.KindEgress || m.ID == 0 || m.Host == "" || len(m.Host) > 255 || m.Port == 0 {
		return fmt.Errorf("%w: %.20q", wire.ErrProtocol, m.Kind)
	}
	select {
	case s.dialling <- struct{}{}:
	default:
		return s.refuse(m.ID, fmt.Errorf("%w: %d connections are being made", engine.ErrTooMany, wire.MaxDialling))
	}
	if err := s.room.flows.take(&s.carried); err != nil {
		<-s.dialling
		return s.refuse(m.ID, err)
	}
	s.flows.Go(func() { s.carry(m) })
	return nil
}

// refuse answers a request of envd that is not granted. If envd does not
// read the answer, only envd is harmed.
func (s *Sandbox) refuse(id uint64, err error) error {
	var denied interface{ Denied() bool }
	_ = s.envd.Send(wire.Message{Kind: wire.KindRefused, ID: id, Error: err.Error(), Denied: errors.As(err, &denied) && denied.Denied()})
	return nil
}

// carry dials on behalf of envd and copies until both directions have ended.
func (s *Sandbox) carry(m wire.Message) {
	defer s.room.flows.release(&s.carried)
	connected := sync.OnceFunc(func() { <-s.dialling })
	defer connected()
	p := s.passage.Load()
	if p == nil {
		_ = s.refuse(m.ID, errInternetOff{})
		return
	}
	conn, err := p.egress.Dial(p.open, m.Host, m.Port)
	if err != nil {
		_ = s.refuse(m.ID, err)
		return
	}
	connected()
	inside, theirs, err := wire.StreamPair()
	if err != nil {
		conn.Close()
		_ = s.refuse(m.ID, err)
		return
	}
	err = s.envd.Send(wire.Message{Kind: wire.KindEgressed, ID: m.ID}, theirs)
	theirs.Close()
	if err != nil {
		conn.Close()
		_ = inside.Close()
		return
	}
	stop := context.AfterFunc(p.open, func() {
		conn.Close()
		_ = inside.Close()
	})
	defer stop()
	wire.Join(conn, inside)
}

type errInternetOff struct{}

func (errInternetOff) Error() string { return "internet access is off for this sandbox" }

func (errInternetOff) Denied() bool { return true }

// Dial connects to a port inside. Errors are [engine.ErrPortClosed] if nothing listens
// there, [engine.ErrGone] if the sandbox has ended, [engine.ErrFrozen] and
// [engine.ErrTooMany].
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	conn, err := s.dial(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("room: dial port %d of sandbox %s: %w", port, s.options.ID, err)
	}
	return conn, nil
}

func (s *Sandbox) dial(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, engine.ErrPortClosed
	}
	if s.reason.Load() != nil {
		return nil, engine.ErrGone
	}
	select {
	case s.streams <- struct{}{}:
	default:
		return nil, fmt.Errorf("%w: %d connections are open", engine.ErrTooMany, wire.MaxStreams)
	}
	conn, theirs, err := wire.StreamPair()
	if err != nil {
		<-s.streams
		return nil, err
	}
	st := &stream{UnixConn: conn}
	st.release = sync.OnceFunc(func() {
		s.pause.leave(st)
		<-s.streams
	})
	if err := s.pause.enter(st); err != nil {
		theirs.Close()
		_ = st.Close()
		return nil, err
	}
	err = s.envd.Send(wire.Message{Kind: wire.KindDial, Port: uint16(port)}, theirs)
	theirs.Close()
	if err == nil {
		err = readStatus(ctx, conn)
	}
	if err != nil {
		_ = st.Close()
		if errors.Is(err, engine.ErrPortClosed) || ctx.Err() != nil {
			return nil, wire.CauseOf(ctx, err)
		}
		if s.pause.isShut() {
			return nil, engine.ErrFrozen
		}
		return nil, s.whyUnanswered(err)
	}
	return st, nil
}

// whyUnanswered distinguishes an envd that is ending, whose sockets close before
// the room reports it, from one that does not answer.
func (s *Sandbox) whyUnanswered(err error) error {
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("envd did not answer: %w", err)
	}
	select {
	case <-s.exited:
		return engine.ErrGone
	case <-patience.C:
		return fmt.Errorf("envd did not answer: %w", err)
	}
}

func readStatus(ctx context.Context, conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(wire.DialTimeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	var status [1]byte
	_, err := io.ReadFull(conn, status[:])
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	if status[0] != wire.StatusConnected {
		return engine.ErrPortClosed
	}
	return conn.SetReadDeadline(time.Time{})
}

// stream is a connection that is counted until it is closed.
type stream struct {
	*net.UnixConn
	release func()
}

func (s *stream) Close() error {
	defer s.release()
	return s.UnixConn.Close()
}
