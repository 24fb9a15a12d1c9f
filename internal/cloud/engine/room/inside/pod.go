//go:build linux

package inside

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/tunnel"
)

// runPod is the envd of a pod. Like the envd of a container, it is the first process. Several
// servers can connect to it at the same time, through a forwarded port. It outlives the servers:
// without a server, it waits for the next server, and all processes continue to run.
func runPod(ctx context.Context, serve func(context.Context, *Guest) error) error {
	if err := errors.Join(restrictEnvd(), endureSignals()); err != nil {
		return err
	}
	listener, err := listenForServers(ctx, os.Args[2], os.Args[3])
	if err != nil {
		return err
	}
	b := newBridge(joinNext(ctx, listener), func(*tunnel.Guest) bool { return true })
	b.many = true
	return b.run(ctx, serve)
}

// listenForServers listens on a port of the loopback interface for servers that have the private
// half of key.
func listenForServers(ctx context.Context, port, key string) (*tunnel.Listener, error) {
	public, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(public) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("the key of the servers, %.60q, is no public key in base64", key)
	}
	uid := os.Getenv(guest.PodUIDVariable)
	if uid == "" {
		return nil, fmt.Errorf("the variable %s is not set: it must have the pod's UID", guest.PodUIDVariable)
	}
	if err := forgetCluster(); err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return nil, err
	}
	return tunnel.Listen(l, public, uid), nil
}

// forgetCluster removes the environment variables that are not for the programs of the sandbox: the
// pod's UID, and the variables with the address of the API server, which the kubelet sets in every
// pod.
func forgetCluster() error {
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name != guest.PodUIDVariable && !strings.HasPrefix(name, "KUBERNETES_SERVICE_") && !strings.HasPrefix(name, "KUBERNETES_PORT") {
			continue
		}
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	return nil
}

// joinNext returns a function that waits for the next server which authenticates itself and sends
// its hello. The function skips a server if its connection ends before the hello. A slow server
// does not make other servers wait.
func joinNext(ctx context.Context, l *tunnel.Listener) func() (*tunnel.Guest, error) {
	joined, failed := make(chan *tunnel.Guest), make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				failed <- err
				return
			}
			go func() {
				server, err := tunnel.NewLink(conn).Join()
				if err != nil {
					_ = conn.Close()
					return
				}
				select {
				case joined <- server:
				case <-ctx.Done():
				}
			}()
		}
	}()
	return func() (*tunnel.Guest, error) {
		select {
		case server := <-joined:
			return server, nil
		case err := <-failed:
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
