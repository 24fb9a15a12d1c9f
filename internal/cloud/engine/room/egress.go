//go:build linux

package room

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
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
	maxLookups    = 32
	maxQuery      = 4 << 10
	lookupTimeout = 10 * time.Second
	queryIdle     = 10 * time.Second // longest time between two queries on one connection
	maxQueries    = 100              // maximum number of queries on one connection
)

// judgeEgressPath records the first sandbox's findings about the egress path.
func (r *Room) judgeEgressPath(probe *Sandbox) {
	r.report.Egress = r.runner.egressReport(probe)
	r.promise()
}

// start begins to serve the egress path with the egress e, until life ends.
func (t *traffic) start(life context.Context, e engine.Egress) {
	t.access = link.NewAccess(life, e)
	switch {
	case e == nil:
		t.exit.close()
	case t.exit != nil:
		t.exit.accept = func() { t.acceptFlows(life) }
		t.access.OnChange(t.exit.listen)
		t.flows.Go(func() { t.answerQueries(life) })
	}
}

// SetEgress changes the egress of a sandbox that was started with an egress. It cuts the
// connections that were made through the old egress.
func (s *Sandbox) SetEgress(e engine.Egress) { s.traffic.access.SetEgress(e) }

// acceptFlows accepts connections out of the sandbox, until the socket stops listening.
func (t *traffic) acceptFlows(life context.Context) {
	for {
		conn, err := t.exit.tcp.AcceptTCP()
		switch {
		case err == nil:
			t.acceptFlow(life, conn)
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

func (t *traffic) acceptFlow(life context.Context, conn *net.TCPConn) {
	connected, err := t.dialling.Take()
	if err != nil {
		reset(conn)
		return
	}
	if err := t.budget.take(&t.carried); err != nil {
		connected()
		reset(conn)
		t.tooMany(life, err)
		return
	}
	t.flows.Go(func() { t.carryOut(conn, connected) })
}

// carryOut forwards a connection of a program inside to its destination. It calls connected when the
// connection to the destination is made, at the latest when it returns.
func (t *traffic) carryOut(inside *net.TCPConn, connected func()) {
	defer t.budget.release(&t.carried)
	defer connected()
	grant := t.access.Grant()
	stop := grant.Ends(inside)
	defer stop()
	if to, ok := inside.LocalAddr().(*net.TCPAddr); ok && to.Port == wire.DNSPort {
		t.answerStream(grant.Context, inside)
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
func (t *traffic) answerQueries(life context.Context) {
	var answering sync.WaitGroup
	defer answering.Wait()
	query, control := make([]byte, maxQuery), make([]byte, unix.CmsgSpace(unix.SizeofInet4Pktinfo))
	for {
		n, controls, _, from, err := t.exit.udp.ReadMsgUDPAddrPort(query, control)
		if errors.Is(err, net.ErrClosed) || life.Err() != nil {
			return
		}
		to := askedAddress(control[:controls])
		if err != nil || to == nil {
			continue // an earlier answer could not be delivered
		}
		question := append([]byte(nil), query[:n]...)
		t.lookUp(life, question, func(work func()) { answering.Go(work) }, func(answer []byte) {
			_, _, _ = t.exit.udp.WriteMsgUDPAddrPort(answer, to, from) // the sender of the query may be gone
		})
	}
}

// lookUp answers a DNS query. It passes a function to start. This function finds the answer, which
// may take time. If there is an answer, the function passes it to reply. If there are too many
// queries at the same time, lookUp itself immediately passes a failure to reply.
func (t *traffic) lookUp(life context.Context, question []byte, start func(func()), reply func([]byte)) {
	answer := func(ctx context.Context) {
		egress, err := t.access.Grant().Egress()
		if err != nil {
			return
		}
		if a := egress.Answer(ctx, question); a != nil {
			reply(a)
		}
	}
	select {
	case t.exit.lookups <- struct{}{}:
		start(func() {
			defer func() { <-t.exit.lookups }()
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
func (t *traffic) answerStream(life context.Context, conn *net.TCPConn) {
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
		t.lookUp(life, question, func(work func()) { work() }, func(answer []byte) {
			_, failed = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
		})
		if failed != nil {
			return
		}
	}
}
