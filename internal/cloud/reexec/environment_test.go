package reexec

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

func TestEnvironment(t *testing.T) {
	t.Parallel()
	c := &guest.Config{SandboxID: "i1", TemplateID: "t1", System: map[string]string{"MPLCONFIGDIR": "/m", "E2B_SANDBOX_ID": "spoofed"}}
	there := func(path string) bool { return path == caBundle }
	nowhere := func(string) bool { return false }
	own := map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": "i1", "E2B_TEMPLATE_ID": "t1", "MPLCONFIGDIR": "/m"}
	if diff := cmp.Diff(own, environment(c, false, "/tmp", nowhere)); diff != "" {
		t.Errorf("offline, no certificates (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(own, environment(c, true, "/tmp", nowhere)); diff != "" {
		t.Errorf("nothing to tell of the proxy (-want +got):\n%s", diff)
	}
	c.Proxy, c.Offline = true, true
	if diff := cmp.Diff(own, environment(c, false, "/tmp", nowhere)); diff != "" {
		t.Errorf("no proxy (-want +got):\n%s", diff)
	}
	got := environment(c, true, "/place/tmp", there)
	if got["PIP_RETRIES"] != "0" || got["npm_config_fetch_retries"] != "0" {
		t.Errorf("retries: %v", got)
	}
	c.Authority = true
	for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS"} {
		for _, exists := range []func(string) bool{there, nowhere} {
			if got := environment(c, false, "/tmp", exists)[name]; got != guest.BundleFile {
				t.Errorf("%s with an authority: got %s, want %s", name, got, guest.BundleFile)
			}
		}
	}
	c.Authority = false
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		if got[name] != "http://127.0.0.1:3128" {
			t.Errorf("%s=%s", name, got[name])
		}
	}
	for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"} {
		if got[name] != caBundle {
			t.Errorf("%s=%s", name, got[name])
		}
	}
	if got["TMPDIR"] != "/place/tmp" {
		t.Errorf("TMPDIR=%s", got["TMPDIR"])
	}
	if got["NO_PROXY"] != got["no_proxy"] || got["NO_PROXY"] == "" {
		t.Errorf("NO_PROXY=%s, no_proxy=%s", got["NO_PROXY"], got["no_proxy"])
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ created, want map[string]string }{
		{nil, map[string]string{"LANG": "C.UTF-8"}},
		{map[string]string{"A": "1"}, map[string]string{"A": "1", "LANG": "C.UTF-8"}},
		{map[string]string{"LANG": "de_DE.UTF-8"}, map[string]string{"LANG": "de_DE.UTF-8"}},
	} {
		if diff := cmp.Diff(tt.want, defaults(tt.created)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.created, diff)
		}
	}
}
