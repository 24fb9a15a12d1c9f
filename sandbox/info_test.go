package sandbox

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
)

// TestInfoHasEveryField checks that Info has each field of the API's form, and that WithNetwork
// takes its network.
func TestInfoHasEveryField(t *testing.T) {
	t.Parallel()
	network := Network{
		AllowOut: []string{"example.com"}, DenyOut: []string{AllTraffic}, DNSServers: []string{"1.1.1.1"},
		Headers:     map[string]map[string]string{"example.com": {"A": "b"}},
		Requests:    map[string][]RequestRule{"example.com": {{Methods: []string{"GET"}, Path: "/a/**"}}, "example.org": {{Path: "/b"}}},
		EgressProxy: &EgressProxy{Address: "p:1", Username: "u", Password: "w", TLS: &EgressProxyTLS{Enabled: true, ServerName: "s", CACert: "c"}},
	}
	wire := network.wire()
	wire.Ask = true
	full := api.SandboxInfo{
		ID: "i", TemplateID: "t", ClientID: "c", Alias: "a", State: StatePaused, StartedAt: time.Unix(1, 0), EndAt: time.Unix(2, 0),
		CPUs: 1, MemoryBytes: 2, DiskBytes: 3, EnvdVersion: "v", Metadata: map[string]string{"k": "v"}, EnvdUnresponsiveAtPause: true,
		PauseMode: PauseFull, Lifecycle: &api.Lifecycle{OnTimeout: OnTimeoutPause}, AccessToken: "key", AllowInternetAccess: new(bool),
		Egress: &wire, VolumeMounts: []api.VolumeMount{{Name: "n", Path: "/p"}}, Engine: "room", Mounts: []api.Mount{{Dir: "/d", Path: "/p"}},
		IdleTimeout: 1, Image: "python:3", Domain: "d",
	}
	given, got := reflect.ValueOf(full), reflect.ValueOf(infoOf(full))
	for i := range given.NumField() {
		name := given.Type().Field(i).Name
		if given.Field(i).IsZero() {
			t.Errorf("the test sets no %s", name)
		}
		switch name {
		case "Egress":
			name = "Network"
		case "IdleTimeout":
			name = "Idle"
		}
		if f := got.FieldByName(name); !f.IsValid() || f.IsZero() {
			t.Errorf("Info has no %s", name)
		}
	}
	info := infoOf(full)
	if diff := cmp.Diff(&network, info.Network); diff != "" || !info.Asks {
		t.Errorf("asks: %v, network (-want +got):\n%s", info.Asks, diff)
	}
}
