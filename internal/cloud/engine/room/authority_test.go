//go:build linux

package room

import (
	"errors"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// What a sandbox is to trust is in none of the files that are saved of it, and what it left
// in the way leads nowhere else.
func TestAuthority(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	const certificate = "-----BEGIN CERTIFICATE-----\nof a test\n-----END CERTIFICATE-----\n"
	create := func(o engine.SandboxOptions) *Sandbox {
		o.Authority = []byte(certificate)
		return newSandbox(t, r, o)
	}
	s := create(engine.SandboxOptions{})
	wantOutput(t, s, "root", "cat /run/e2bctl/authority.pem", strings.TrimSpace(certificate))
	wantOutput(t, s, "root", "tail -n 3 /run/e2bctl/certificates.pem", strings.TrimSpace(certificate))
	wantOutput(t, s, "root", "for f in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do if [ -e $f ]; then cmp $f /run/e2bctl/certificates.pem; fi; done", "")
	without := newSandbox(t, r, engine.SandboxOptions{Files: saveTo(t, s)})
	wantOutput(t, without, "root", "ls -A /run/e2bctl; grep -l 'of a test' /etc/ssl/certs/* 2>/dev/null; true", "")

	wantOutput(t, without, "root", "rm -rf /run/e2bctl && mkdir /tmp/elsewhere && ln -s ../tmp/elsewhere /run/e2bctl && rm -f /etc/ssl/certs/ca-certificates.crt && ln -s /proc/1/environ /etc/ssl/certs/ca-certificates.crt", "")
	tricked := create(engine.SandboxOptions{Files: saveTo(t, without)})
	wantOutput(t, tricked, "root", "cat /tmp/elsewhere/authority.pem", strings.TrimSpace(certificate))
}

func TestAuthorityRefused(t *testing.T) {
	t.Parallel()
	_, err := newRoomOn(t, engine.None).NewSandbox(t.Context(), engine.SandboxOptions{ID: "a", Authority: []byte("x")})
	if !errors.Is(err, engine.ErrNoAuthority) || !strings.Contains(err.Error(), "no mounts") {
		t.Errorf("without mounts: got error %v, want %v", err, engine.ErrNoAuthority)
	}
}
