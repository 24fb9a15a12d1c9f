package mcp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Every mode of --network denies private networks, and only "all" and "ask" leave other hosts open.
func TestNetworks(t *testing.T) {
	t.Parallel()
	for mode, want := range map[network]struct {
		internet, isOpen bool
		allowed          []string
	}{
		networkNone: {},
		networkPyPI: {internet: true, allowed: []string{"pypi.org", "files.pythonhosted.org"}},
		networkAll:  {internet: true, isOpen: true},
		networkAsk:  {internet: true, isOpen: true},
	} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			var got struct {
				Internet *bool `json:"allow_internet_access"`
				Network  struct {
					AllowOut []string `json:"allowOut"`
					DenyOut  []string `json:"denyOut"`
				} `json:"network"`
			}
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
					t.Error(err)
				}
				http.Error(w, `{"code":400,"message":"seen"}`, http.StatusBadRequest)
			}))
			t.Cleanup(service.Close)
			client, err := sandbox.NewClient(sandbox.WithAPIURL(service.URL), sandbox.WithAPIKey("e2b_0000000000000000000000000000000000000000"))
			must.Do(t, err)
			t.Cleanup(func() { must.Do(t, client.Close()) })
			if _, err := client.Create(t.Context(), mode.options()...); err == nil {
				t.Fatal("the service refused the sandbox, and Create succeeded")
			}
			if internet := got.Internet == nil || *got.Internet; internet != want.internet {
				t.Errorf("internet access %t, want %t", internet, want.internet)
			}
			if !slices.Equal(got.Network.AllowOut, want.allowed) {
				t.Errorf("allowed are %v, want %v", got.Network.AllowOut, want.allowed)
			}
			if isOpen := want.internet && !slices.Contains(got.Network.DenyOut, sandbox.AllTraffic); isOpen != want.isOpen {
				t.Errorf("denied are %v", got.Network.DenyOut)
			}
			if want.internet && !slices.Contains(got.Network.DenyOut, "192.168.0.0/16") {
				t.Errorf("denied are %v, want private networks among them", got.Network.DenyOut)
			}
		})
	}
}
