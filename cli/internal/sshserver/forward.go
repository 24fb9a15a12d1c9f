package sshserver

import (
	"context"
	"io"
	"slices"
	"sync"

	"golang.org/x/crypto/ssh"
)

// forwardRequest is the destination of a forwarded connection, and where it comes from.
type forwardRequest struct {
	Host       string
	Port       uint32
	OriginHost string
	OriginPort uint32
}

// forward serves a channel of type direct-tcpip: a connection to a port of the sandbox. Other
// destinations are refused, so that the sandbox is no way into the networks that it reaches.
func (s *server) forward(ctx context.Context, offered ssh.NewChannel) {
	var to forwardRequest
	switch {
	case ssh.Unmarshal(offered.ExtraData(), &to) != nil || to.Port < 1 || to.Port > 65535:
		_ = offered.Reject(ssh.ConnectionFailed, "not a port")
		return
	case !slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, to.Host):
		_ = offered.Reject(ssh.Prohibited, "e2bctl forwards ports of the sandbox only: want localhost, 127.0.0.1 or ::1")
		return
	}
	port, err := s.Sandbox.Dial(ctx, int(to.Port))
	if err != nil {
		_ = offered.Reject(ssh.ConnectionFailed, s.broken(err))
		return
	}
	defer func() { _ = port.Close() }()
	channel, requests, err := offered.Accept()
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = port.Close() })
	defer stop()
	var sending sync.WaitGroup
	sending.Go(func() {
		ssh.DiscardRequests(requests) // until the channel is closed
		_ = port.Close()
	})
	sending.Go(func() {
		_, _ = io.Copy(port, channel)
		_ = port.Close() // one direction of it cannot end alone
	})
	_, _ = io.Copy(channel, port)
	_ = port.Close()
	_ = channel.Close()
	sending.Wait()
}
