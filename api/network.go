package api

import (
	"context"
	"net/http"
)

// AllTraffic in [Network].DenyOut denies everything that AllowOut does not hold.
const AllTraffic = "0.0.0.0/0"

// Network says what a sandbox may reach. AllowOut beats DenyOut.
type Network struct {
	// AllowOut are addresses, networks such as 10.0.0.0/8, and names: "example.com",
	// "*.example.com" for all names below it, "*" for any. Names need [AllTraffic]
	// in DenyOut.
	AllowOut []string `json:"allowOut,omitempty"`
	// DenyOut are addresses and networks.
	DenyOut []string `json:"denyOut,omitempty"`
}

// NetworkParams replace what a running sandbox may reach. The zero value allows
// everything that the service does.
type NetworkParams struct {
	Network
	// AllowInternetAccess is nil for the service's default, which is true.
	AllowInternetAccess *bool `json:"allow_internet_access,omitempty"`
}

// createNetwork is the network of a create request: what the sandbox may reach, and
// how it is reached.
type createNetwork struct {
	Network
	AllowPublicTraffic *bool  `json:"allowPublicTraffic,omitempty"`
	HTTPSPorts         []int  `json:"httpsPorts,omitempty"`
	MaskRequestHost    string `json:"maskRequestHost,omitempty"`
}

// network is nil when p has nothing to say about it.
func (p *CreateParams) network() *createNetwork {
	if p.Network == nil && !p.PrivateTraffic && len(p.HTTPSPorts) == 0 && p.RequestHost == "" {
		return nil
	}
	n := &createNetwork{HTTPSPorts: p.HTTPSPorts, MaskRequestHost: p.RequestHost}
	if p.Network != nil {
		n.Network = *p.Network
	}
	if p.PrivateTraffic {
		n.AllowPublicTraffic = new(bool)
	}
	return n
}

// SetNetwork replaces what a running sandbox may reach, as a whole: what p leaves
// out is cleared. What is connected may be cut or not. A sandbox that does not run is
// [ErrNotFound].
func (s *SandboxService) SetNetwork(ctx context.Context, id string, p *NetworkParams) error {
	path, err := sandboxPath(id, "/network")
	if err != nil {
		return err
	}
	if p == nil {
		p = &NetworkParams{}
	}
	_, err = s.client.do(ctx, call{method: http.MethodPut, path: path, body: p}, nil)
	return err
}
