package control

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/secrets"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEgressProxy checks that no answer contains the password or the certificates of a proxy. The
// record has the password sealed for this proxy. An update without a proxy removes the proxy.
func TestEgressProxy(t *testing.T) {
	t.Parallel()
	s := start(t)
	const password = "open sesame"
	proxy := `{"address":"proxy.test:1080","username":"someone","password":"` + password + `","tls":{"enabled":true,"serverName":"other.test"}}`
	id := s.mustCreate(t, `{"templateID":"base","network":{"egressProxy":`+proxy+`}}`)
	want := map[string]any{"address": "proxy.test:1080", "username": "someone", "tls": map[string]any{"enabled": true, "serverName": "other.test"}}
	check := func(when string) {
		t.Helper()
		got := s.must(t, "GET", "/sandboxes/"+id, "", 200)
		if diff := cmp.Diff(map[string]any{"egressProxy": want}, got["network"]); diff != "" {
			t.Errorf("%s: reported (-want +got):\n%s", when, diff)
		}
		sb, err := s.registry.Get(id)
		must.Do(t, err)
		text, err := json.Marshal(sb.Request)
		if err != nil || strings.Contains(string(text), password) {
			t.Errorf("%s: recorded is %s, %v, want no password", when, text, err)
		}
		opened, err := s.options.Secrets.Unseal(sb.Network.Proxy.Sealed, sb.Network.Proxy.SealedUnder())
		if err != nil || opened != password {
			t.Errorf("%s: got the password %q, %v", when, opened, err)
		}
		other := *sb.Network.Proxy
		other.Address = "other.test:1080"
		if _, err := s.options.Secrets.Unseal(other.Sealed, other.SealedUnder()); err == nil {
			t.Errorf("%s: the password is for any proxy", when)
		}
	}
	check("created")
	want["address"], proxy = "http://proxy.test:8080", strings.Replace(proxy, "proxy.test:1080", "http://proxy.test:8080", 1)
	s.must(t, "PUT", "/sandboxes/"+id+"/network", `{"egressProxy":`+proxy+`}`, 204)
	check("changed")
	s.must(t, "PUT", "/sandboxes/"+id+"/network", `{}`, 204)
	if got := s.must(t, "GET", "/sandboxes/"+id, "", 200)["network"]; !cmp.Equal(got, map[string]any{}) {
		t.Errorf("removed: got %v, want none", got)
	}
}

// TestSealedPassword checks that a request no longer contains the password of a proxy once it is
// sealed.
func TestSealedPassword(t *testing.T) {
	t.Parallel()
	p := &egressProxy{Address: "proxy.test:1080", Username: "u", Password: "open sesame"}
	if err := start(t).seal(p, ""); err != nil || p.Password != "" || len(p.sealed) == 0 {
		t.Errorf("got %+v and error %v, want it sealed", p, err)
	}
}

// TestUnsealedPassword checks that a password which cannot be sealed, or is too long, is refused and not kept.
func TestUnsealedPassword(t *testing.T) {
	t.Parallel()
	s := start(t)
	for n, refused := range map[int]bool{maxProxyPassword: false, maxProxyPassword + 1: true} {
		p := &egressProxy{Address: "proxy.test:1080", Password: strings.Repeat("x", n)}
		if err := s.seal(p, "network."); (err != nil) != refused || refused && !strings.Contains(err.Error(), "network.egressProxy.password has more than 255 bytes") {
			t.Errorf("%d bytes: got error %v, want it refused: %v", n, err, refused)
		}
	}
	for _, none := range []*egressProxy{nil, {Address: "proxy.test:1080"}} {
		if err := s.seal(none, ""); err != nil || none != nil && none.sealed != nil {
			t.Errorf("no password: got %+v and error %v", none, err)
		}
	}
	lost := errors.New("the key is lost")
	s.options.Secrets = secrets.New(secrets.Options{Store: store.Temporary(t.TempDir()), Key: func() ([]byte, error) { return nil, lost }})
	p := &egressProxy{Address: "proxy.test:1080", Password: "open sesame"}
	if err := s.seal(p, ""); !errors.Is(err, lost) || p.sealed != nil {
		t.Errorf("without a key: got %+v and error %v", p, err)
	}
	const proxy = `{"egressProxy":{"address":"proxy.test:1080","username":"u","password":"open sesame"}}`
	if resp, text := s.do(t, "POST", "/v2/sandboxes", `{"templateID":"base","network":`+proxy+`}`); resp.StatusCode != 500 || strings.Contains(text, "sesame") {
		t.Errorf("a create without a key: got %d %s", resp.StatusCode, text)
	}
}

// TestEgressProxyIsChecked checks that a proxy that sandboxes may not reach is refused before
// anything is created or changed.
func TestEgressProxyIsChecked(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	s.options.CheckProxy = func(_ context.Context, rules *network.Rules) error {
		return errors.New("proxy.test is not reachable")
	}
	const proxy = `{"egressProxy":{"address":"proxy.test:1080"}}`
	for method, path := range map[string]string{"POST": "/v2/sandboxes", "PUT": "/sandboxes/" + id + "/network"} {
		body := proxy
		if method == "POST" {
			body = `{"templateID":"base","network":` + proxy + `}`
		}
		if resp, text := s.do(t, method, path, body); resp.StatusCode != 400 || !strings.Contains(text, "egressProxy: proxy.test is not reachable") {
			t.Errorf("%s: got %d %s, want 400 that says why", method, resp.StatusCode, text)
		}
	}
	if got := s.fakes.Fake(id).Rules(); got != nil {
		t.Errorf("a refused change was made: %+v", got)
	}
}
