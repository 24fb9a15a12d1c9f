//go:build linux

package room

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// Bounds of the DNS queries of one sandbox.
const (
	exitSockets   = 2
	exitBacklog   = 128
	maxLookups    = 32
	maxQuery      = 4 << 10
	lookupTimeout = 10 * time.Second
	queryIdle     = 10 * time.Second // longest time between two queries on one connection
	maxQueries    = 100              // maximum number of queries on one connection
)

// exit is the outer end of a sandbox's egress path: sockets in the sandbox's network
// namespace. The first stage of the sandbox makes them before any of the sandbox's code runs.
type exit struct {
	tcp *net.TCPListener
	udp *net.UDPConn

	accept  func()        // accepts connections until the socket stops listening
	lookups chan struct{} // has an element for each query that is being answered

	mu        sync.Mutex
	listening bool
	closed    bool
	accepting sync.WaitGroup
}

// newExit takes over the descriptors that the first stage sent: none, or both sockets.
func newExit(sockets []*os.File) (*exit, error) {
	defer wire.CloseAll(sockets)
	if len(sockets) == 0 {
		return nil, nil
	}
	if len(sockets) != exitSockets {
		return nil, fmt.Errorf("%w: %d sockets", wire.ErrProtocol, len(sockets))
	}
	l, err := net.FileListener(sockets[0])
	if err != nil {
		return nil, err
	}
	p, err := net.FilePacketConn(sockets[1])
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	tcp, isTCP := l.(*net.TCPListener)
	udp, isUDP := p.(*net.UDPConn)
	if !isTCP || !isUDP {
		return nil, errors.Join(fmt.Errorf("%w: not a TCP and a UDP socket", wire.ErrProtocol), l.Close(), p.Close())
	}
	return &exit{tcp: tcp, udp: udp, lookups: make(chan struct{}, maxLookups)}, nil
}

// close ends all connections and queries. It does nothing if the sandbox has no exit.
func (e *exit) close() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	_ = e.tcp.Close() // both fail if they are already closed
	_ = e.udp.Close()
	e.accepting.Wait()
}

// judgeEgressPath records the first sandbox's findings about the egress path.
func (r *Room) judgeEgressPath(probe *Sandbox) {
	r.report.Egress = r.runner.egressReport(probe)
	r.promise()
}

// startEgress begins to serve the egress path.
func (s *Sandbox) startEgress(life context.Context, e engine.Egress) {
	s.access = link.NewAccess(life, e)
	s.standstill.Out = s.access
	switch {
	case e == nil:
		s.exit.close()
	case s.exit != nil:
		s.exit.accept = func() { s.acceptFlows(life) }
		s.access.OnChange(s.exit.listen)
		s.flows.Go(func() { s.answerQueries(life) })
	}
}

// SetEgress changes the egress of a sandbox that was started with an egress. It cuts the
// connections that were made through the old egress.
func (s *Sandbox) SetEgress(e engine.Egress) { s.access.SetEgress(e) }

// listen makes the TCP socket listen and accepts connections, or stops both. The
// kernel refuses connections to a socket that does not listen.
func (e *exit) listen(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || on == e.listening {
		return
	}
	e.listening = on
	raw, err := e.tcp.SyscallConn()
	if err != nil {
		return // it is closed
	}
	if !on {
		// The socket stays bound, so nothing inside can take its place.
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RD) })
		e.accepting.Wait()
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.Listen(int(fd), exitBacklog) })
	e.accepting.Go(e.accept)
}

// acceptFlows accepts connections out of the sandbox, until the socket stops listening.
func (s *Sandbox) acceptFlows(life context.Context) {
	for {
		conn, err := s.exit.tcp.AcceptTCP()
		switch {
		case err == nil:
			s.acceptFlow(life, conn)
		case errors.Is(err, net.ErrClosed), errors.Is(err, syscall.EINVAL):
			return
		default: // most likely out of descriptors
			select {
			case <-life.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

func (s *Sandbox) acceptFlow(life context.Context, conn *net.TCPConn) {
	connected, err := s.dialling.Take()
	if err != nil {
		reset(conn)
		return
	}
	if err := s.room.flows.take(&s.carried); err != nil {
		connected()
		reset(conn)
		s.tooMany(life, err)
		return
	}
	s.flows.Go(func() { s.carryOut(conn, connected) })
}

// tooMany logs once per sandbox that its connections are refused.
func (s *Sandbox) tooMany(ctx context.Context, err error) {
	if s.refusing.CompareAndSwap(false, true) {
		s.room.options.Logger.WarnContext(ctx, "connections out of a sandbox are refused", "sandbox", s.options.ID, "error", err)
	}
}

// carryOut forwards a connection of a program inside to its destination. It calls connected when the
// connection to the destination is made, at the latest when it returns.
func (s *Sandbox) carryOut(inside *net.TCPConn, connected func()) {
	defer s.room.flows.release(&s.carried)
	defer connected()
	grant := s.access.Grant()
	stop := grant.Ends(inside)
	defer stop()
	if to, ok := inside.LocalAddr().(*net.TCPAddr); ok && to.Port == wire.DNSPort {
		s.answerStream(grant.Context, inside)
		return
	}
	egress, err := grant.Egress()
	var outside net.Conn
	if err == nil {
		outside, err = egress.Connect(grant.Context, inside)
	}
	if err != nil {
		reset(inside)
		return
	}
	connected()
	grant.Join(outside, inside)
}

// reset ends the connection of a program in the sandbox. To the program, the connection
// looks refused.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// answerQueries answers DNS queries that arrive as packets.
func (s *Sandbox) answerQueries(life context.Context) {
	var answering sync.WaitGroup
	defer answering.Wait()
	query, control := make([]byte, maxQuery), make([]byte, unix.CmsgSpace(unix.SizeofInet4Pktinfo))
	for {
		n, controls, _, from, err := s.exit.udp.ReadMsgUDPAddrPort(query, control)
		if errors.Is(err, net.ErrClosed) || life.Err() != nil {
			return
		}
		to := askedAddress(control[:controls])
		if err != nil || to == nil {
			continue // an earlier answer could not be delivered
		}
		question := append([]byte(nil), query[:n]...)
		s.lookUp(life, question, func(work func()) { answering.Go(work) }, func(answer []byte) {
			_, _, _ = s.exit.udp.WriteMsgUDPAddrPort(answer, to, from) // the sender of the query may be gone
		})
	}
}

// lookUp answers a DNS query. It passes a function to start. This function finds the answer, which
// may take time. If there is an answer, the function passes it to reply. If there are too many
// queries at the same time, lookUp itself immediately passes a failure to reply.
func (s *Sandbox) lookUp(life context.Context, question []byte, start func(func()), reply func([]byte)) {
	answer := func(ctx context.Context) {
		egress, err := s.access.Grant().Egress()
		if err != nil {
			return
		}
		if a := egress.Answer(ctx, question); a != nil {
			reply(a)
		}
	}
	select {
	case s.exit.lookups <- struct{}{}:
		start(func() {
			defer func() { <-s.exit.lookups }()
			ctx, cancel := context.WithTimeout(life, lookupTimeout)
			defer cancel()
			answer(ctx)
		})
	default:
		ended, cancel := context.WithCancel(life)
		cancel()
		answer(ended)
	}
}

// askedAddress returns the control message for an answer. It makes the address to which the query was
// sent the source of the answer.
func askedAddress(control []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo {
			to := [4]byte(m.Data[8:12]) // in_pktinfo.ipi_addr
			return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: to})
		}
	}
	return nil
}

// answerStream answers the DNS queries of one connection.
func (s *Sandbox) answerStream(life context.Context, conn *net.TCPConn) {
	defer func() { _ = conn.Close() }()
	for range maxQueries {
		if err := conn.SetDeadline(time.Now().Add(queryIdle)); err != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(size[:]))
		if len(question) > maxQuery {
			return
		}
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		failed := io.ErrUnexpectedEOF // no answer ends the connection
		s.lookUp(life, question, func(work func()) { work() }, func(answer []byte) {
			_, failed = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
		})
		if failed != nil {
			return
		}
	}
}
