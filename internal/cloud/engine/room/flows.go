//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// serve answers envd's messages until envd ends. It does not trust the messages.
func (s *Sandbox) serve() {
	for {
		m, _, err := s.envd.Receive(0)
		failed := err == nil && m.Kind == wire.KindFailed
		if failed {
			err = s.failure(m.Error)
		}
		if err == nil {
			err = s.answer(m)
		}
		if err == nil {
			continue
		}
		if failed || errors.Is(err, wire.ErrProtocol) {
			s.life.fail(err)
			s.room.killProcess(s) // envd may report its end and continue
		}
		<-s.process.died
		s.life.fail(s.causeOfDeath())
		go func() { _ = s.life.close() }() // in the background, because it waits for this function
		return
	}
}

// failure returns the error of an envd that ends with a message. The envd of a gVisor whose process was
// killed for lack of memory only says that gVisor has ended.
func (s *Sandbox) failure(message string) error {
	if s.room.runner.killed(0) && s.OOMKills() > 0 {
		return engine.ErrOutOfMemory
	}
	return fmt.Errorf("envd ended: %.*s", wire.MaxErrorText, message)
}

func (s *Sandbox) answer(m wire.Message) error {
	if m.Kind == wire.KindLog {
		if s.options.Tell != nil {
			s.options.Tell(m.Spec)
		}
		return nil
	}
	if m.Kind != wire.KindTerminal && s.room.runner.takes(m.Kind) {
		select {
		case s.pause.answers <- m:
			return nil
		default: // there was no request
		}
	}
	if m.Kind == wire.KindKernel && m.ID != 0 {
		return s.giveKernel(m.ID)
	}
	if m.Kind == wire.KindTerminal && m.ID != 0 && s.room.runner.takes(m.Kind) {
		return s.giveTerminal(m.ID)
	}
	if m.Kind != wire.KindEgress || m.ID == 0 || m.Host == "" || len(m.Host) > 255 || m.Port == 0 {
		return fmt.Errorf("%w: %.20q", wire.ErrProtocol, m.Kind)
	}
	connected, err := s.traffic.dialling.Take()
	if err != nil {
		return s.refuse(m.ID, err)
	}
	if err := s.traffic.budget.take(&s.traffic.carried); err != nil {
		connected()
		return s.refuse(m.ID, err)
	}
	s.traffic.flows.Go(func() { s.carry(m, connected) })
	return nil
}

// refuse answers a request of envd that is refused. If envd does not read the answer, only envd
// is harmed.
func (s *Sandbox) refuse(id uint64, err error) error {
	_ = s.envd.Send(wire.Message{Kind: wire.KindRefused, ID: id, Error: err.Error(), Denied: link.IsDenied(err)})
	return nil
}

// warnOfFlows logs that connections out of the sandbox are refused.
func (s *Sandbox) warnOfFlows(ctx context.Context, err error) {
	s.room.options.Logger.WarnContext(ctx, "connections out of a sandbox are refused", "sandbox", s.options.ID, "error", err)
}

// carry dials a connection that envd requested, and copies data until both directions have ended. It
// calls connected when the connection is made, at the latest when it returns.
func (s *Sandbox) carry(m wire.Message, connected func()) {
	defer s.traffic.budget.release(&s.traffic.carried)
	defer connected()
	grant := s.traffic.access.Grant()
	conn, err := grant.Dial(m.Host, m.Port)
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
	err = s.envd.SendFiles(wire.Message{Kind: wire.KindEgressed, ID: m.ID}, wire.Lent(wire.FileStream, theirs))
	theirs.Close()
	if err != nil {
		conn.Close()
		_ = inside.Close()
		return
	}
	grant.Join(conn, inside)
}

// Dial connects to a port inside. Its errors include [engine.ErrPortClosed] if nothing listens
// there, [engine.ErrGone] if the sandbox has ended, [engine.ErrFrozen] and [engine.ErrTooMany].
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
	if s.life.err() != nil {
		return nil, engine.ErrGone
	}
	release, err := s.traffic.slots.Take(port)
	if err != nil {
		return nil, err
	}
	st, err := s.reach(ctx, port, release)
	if err == nil {
		return st, nil
	}
	release()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, engine.ErrPortClosed), errors.Is(err, engine.ErrTooMany), errors.Is(err, engine.ErrFrozen):
		return nil, err
	case s.traffic.entrance.IsShut():
		return nil, engine.ErrFrozen
	}
	return nil, s.whyUnanswered(err)
}

// reach connects to a port, and calls release when the stream is closed. If possible, the server
// itself connects to the ports of programs, because such a connection uses no descriptor of envd.
func (s *Sandbox) reach(ctx context.Context, port int, release func()) (*stream, error) {
	dial := s.room.runner.dialler(s)
	switch {
	case protocol.OwnPort(port), dial == nil:
		return s.askEnvd(ctx, port, release)
	case s.traffic.entrance.IsShut(): // the kernel would take the connection for the program
		return nil, engine.ErrFrozen
	}
	conn, err := dial(ctx, uint16(port))
	if err != nil {
		return nil, err
	}
	return s.traffic.enter(conn, release)
}

// askEnvd makes envd connect a stream to a port.
func (s *Sandbox) askEnvd(ctx context.Context, port int, release func()) (*stream, error) {
	conn, theirs, err := wire.StreamPair()
	if err != nil {
		return nil, err
	}
	st, err := s.traffic.enter(conn, release)
	if err != nil {
		theirs.Close()
		return nil, err
	}
	err = s.envd.SendFiles(wire.Message{Kind: wire.KindDial, Port: uint16(port)}, wire.Lent(wire.FileStream, theirs))
	theirs.Close()
	if err == nil {
		err = readStatus(ctx, conn)
	}
	if err != nil {
		_ = st.Close()
		return nil, fmt.Errorf("envd did not connect to it: %w", err)
	}
	return st, nil
}

// whyUnanswered returns the error for a sandbox that did not answer. It distinguishes a sandbox
// that is ending from one that only does not answer: the sockets of a sandbox that is ending close
// before the room reports the end.
func (s *Sandbox) whyUnanswered(err error) error {
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	select {
	case <-s.life.done:
		return engine.ErrGone
	case <-patience.C:
		return err
	}
}

func readStatus(ctx context.Context, conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(link.DialTimeout)); err != nil {
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
	if err := link.StatusError(status[0]); err != nil {
		return err
	}
	return conn.SetReadDeadline(time.Time{})
}
