//go:build linux

package room

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// TestAuthority checks that a sandbox trusts an authority without saving it, and that a
// link that the sandbox left at a path of the authority is not followed.
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

// TestAuthorityOfWarm checks that a warm sandbox that gets an authority is like a sandbox
// that had it from the start.
func TestAuthorityOfWarm(t *testing.T) {
	t.Parallel()
	limits := engine.Limits{MaxProcesses: 100}
	r := startRoom(t, Options{Warm: &limits})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if !r.ranged() {
		t.Skip("nothing can be shown later in sandboxes of this user")
	}
	const look = "awk '{print $5, $6}' /proc/self/mountinfo | sort; ls -lA /run/e2bctl | tail -n +2 | cut -d ' ' -f 1-5; tail -n 3 /run/e2bctl/certificates.pem; md5sum /run/e2bctl/* " +
		"/etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt 2>/dev/null; echo x 2>&1 > /run/e2bctl/authority.pem; umask; pwd; ps axo args="
	o := engine.SandboxOptions{ID: "same", Limits: limits, Authority: []byte("-----BEGIN CERTIFICATE-----\nof a test\n-----END CERTIFICATE-----\n")}
	readyWarm(t, r)
	warm := newSandbox(t, r, o)
	if warm.number != 2 { // after the probe
		t.Errorf("the warm sandbox was not used, but number %d", warm.number)
	}
	o.Limits.MaxProcesses++
	cold := newSandbox(t, r, o)
	for _, user := range []string{"user", "root"} {
		want, got := call(t, cold, "/run", testRequest{User: user, Command: look}), call(t, warm, "/run", testRequest{User: user, Command: look})
		if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(got.Output, "of a test") {
			t.Errorf("%s: a warm sandbox differs (-cold +warm):\n%s\n%+v", user, diff, got)
		}
	}
	without := newSandbox(t, r, engine.SandboxOptions{Files: saveTo(t, warm)})
	wantOutput(t, without, "root", "ls -A /run/e2bctl; grep -l 'of a test' /etc/ssl/certs/* 2>/dev/null; true", "")
}

func TestAuthorityRefused(t *testing.T) {
	t.Parallel()
	_, err := newRoomOn(t, engine.None).NewSandbox(t.Context(), engine.SandboxOptions{ID: "a", Authority: []byte("x")})
	if !errors.Is(err, &engine.LackError{Feature: engine.HeaderRules}) || !strings.Contains(err.Error(), "no mounts") {
		t.Errorf("without mounts: got error %v, want %v", err, &engine.LackError{Feature: engine.HeaderRules})
	}
}
