package network

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	answerTTL = 30 // seconds; the machine's resolver does not report a TTL
	// maxAnswers is the number of addresses that fit into an answer of 512 bytes with the longest
	// name.
	maxAnswers = 14
)

// Answer answers a DNS question. It supports IPv4 addresses. The machine's resolver looks up the
// name, and Answer leaves out addresses that may not be reached. If no address remains, Answer
// answers that the name does not exist. If a program must be asked about a name, Answer does not
// look up the name. It answers with an address that stands for the name, see standIns. Names have
// no IPv6 addresses, because there is no IPv6 inside the sandbox. Other questions are answered as
// not implemented. If query is not a question, Answer returns nil, which means no answer.
func (e *Egress) Answer(ctx context.Context, query []byte) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil || head.Response {
		return nil
	}
	reply := dnsmessage.Header{ID: head.ID, Response: true, OpCode: head.OpCode, RecursionDesired: head.RecursionDesired, RecursionAvailable: true}
	question, err := p.Question()
	if _, more := p.Question(); err != nil || more == nil || head.OpCode != 0 || question.Class != dnsmessage.ClassINET {
		reply.RCode = dnsmessage.RCodeFormatError
		if err == nil && head.OpCode != 0 {
			reply.RCode = dnsmessage.RCodeNotImplemented
		}
		return pack(reply, nil, nil)
	}
	addresses, code := e.lookUp(ctx, question)
	reply.RCode = code
	return pack(reply, &question, addresses)
}

func (e *Egress) lookUp(ctx context.Context, q dnsmessage.Question) ([]netip.Addr, dnsmessage.RCode) {
	name := normalize(q.Name.String())
	if e.peer(name) {
		return e.lookUpOwn(name, q.Type, relayAddress, func() error { return e.permitPeer(ctx, name) })
	}
	if s := e.Services.named(name); s != nil {
		return e.lookUpOwn(name, q.Type, s.inside, func() error { return e.permitService(ctx, s, s.port) })
	}
	if e.Rules.DenyAll() && !e.Rules.named(name) && !e.asks() {
		e.Denials.Add(Denial{Host: name, Rule: e.Rules.denial()})
		return nil, dnsmessage.RCodeNameError
	}
	switch q.Type {
	case dnsmessage.TypeA:
	case dnsmessage.TypeAAAA, dnsmessage.TypeHTTPS, dnsmessage.TypeSVCB:
		return nil, dnsmessage.RCodeSuccess
	case dnsmessage.TypePTR:
		return nil, dnsmessage.RCodeNameError
	default:
		return nil, dnsmessage.RCodeNotImplemented
	}
	if !validName(name) || numeric(name) {
		return nil, dnsmessage.RCodeNameError
	}
	named := e.Rules.named(name)
	if e.asks() && !named {
		return []netip.Addr{e.Asks.standIns.address(name)}, dnsmessage.RCodeSuccess
	}
	addresses, err := e.Dialer.resolve(ctx, "ip4", name)
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return nil, dnsmessage.RCodeNameError
	}
	if err != nil {
		return nil, dnsmessage.RCodeServerFailure
	}
	own, err := e.Dialer.ownAddresses()
	if err != nil {
		return nil, dnsmessage.RCodeServerFailure
	}
	var reachable []netip.Addr
	var denied string
	for _, a := range addresses {
		a = a.Unmap()
		rule := e.Dialer.Policy.check(a, e.Rules, named, own)
		switch {
		case rule != "":
			denied = rule
		case a.Is4() && len(reachable) < maxAnswers:
			reachable = append(reachable, a)
		}
	}
	if len(reachable) == 0 {
		if denied != "" {
			e.Denials.Add(Denial{Host: name, Rule: denied})
		}
		return nil, dnsmessage.RCodeNameError
	}
	return reachable, dnsmessage.RCodeSuccess
}

// lookUpOwn looks up a name that resolves to address only inside e's sandbox: the name of a sandbox
// or of a service of this machine. permit returns a *[DeniedError] if the rules deny the name.
func (e *Egress) lookUpOwn(name string, kind dnsmessage.Type, address netip.Addr, permit func() error) ([]netip.Addr, dnsmessage.RCode) {
	var err error
	if !e.asks() { // otherwise the connection asks
		err = permit()
	}
	denied, ok := errors.AsType[*DeniedError](err)
	switch {
	case ok:
		e.Denials.Add(Denial{Host: name, Rule: denied.Rule})
		return nil, dnsmessage.RCodeNameError
	case err != nil:
		return nil, dnsmessage.RCodeServerFailure
	case kind == dnsmessage.TypeA:
		return []netip.Addr{address}, dnsmessage.RCodeSuccess
	}
	return nil, dnsmessage.RCodeSuccess
}

// pack encodes an answer. It returns nil if the answer cannot be encoded.
func pack(head dnsmessage.Header, question *dnsmessage.Question, addresses []netip.Addr) []byte {
	b := dnsmessage.NewBuilder(make([]byte, 0, 512), head)
	b.EnableCompression()
	err := b.StartQuestions()
	if question != nil {
		err = errors.Join(err, b.Question(*question), b.StartAnswers())
		for _, a := range addresses {
			record := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: answerTTL}
			err = errors.Join(err, b.AResource(record, dnsmessage.AResource{A: a.As4()}))
		}
	}
	answer, last := b.Finish()
	if err != nil || last != nil {
		return nil
	}
	return answer
}
