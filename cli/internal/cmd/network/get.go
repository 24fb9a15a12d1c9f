package network

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

func newCmdGet(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:   "get <id>",
		Short: "Show what a sandbox may reach",
		Long: `Show the rules for the connections that a sandbox makes: whether it reaches the
internet, the allowed and denied hosts, and the headers that are put into its requests,
without their values. Allowed hosts take precedence over denied ones.

Services record whether a sandbox was created without internet access, but not whether
that has changed since: the line then says "off when created".`,
		Example: `  e2bctl network get "$ID"
  e2bctl network get "$ID" --jq '.allowOut[]'`,
	}, nil, func(ctx context.Context, conn *cmdutil.Connection, id string) error {
		info, err := conn.Info(ctx, id)
		if err != nil {
			return err
		}
		view := viewOf(info)
		if f.JSON() {
			return cmdutil.WriteJSON(f.IO.Out, view)
		}
		return cmdutil.WriteTable(f.IO.Out, f.IO.OutWidth, []string{"FIELD", "VALUE"}, view.rows())
	})
}

// networkView is the network of a sandbox as -o json shows it. It omits the values of headers,
// because they may be secrets.
type networkView struct {
	ID       string `json:"sandboxID"`
	Internet bool   `json:"internet"`
	// the setting with which the sandbox was created
	AllowInternetAccess *bool               `json:"allowInternetAccess,omitempty"`
	AllowOut            []string            `json:"allowOut"`
	DenyOut             []string            `json:"denyOut"`
	DNSServers          []string            `json:"dnsServers,omitempty"`
	Headers             map[string][]string `json:"headers,omitempty"` // the names of the headers of each host
	// the only requests that go to a host, such as "GET /simple/**"
	Requests    map[string][]string `json:"requests,omitempty"`
	EgressProxy string              `json:"egressProxy,omitempty"`
	Ask         bool                `json:"ask,omitempty"`
}

func viewOf(info *sandbox.Info) networkView {
	v := networkView{ID: info.ID, AllowInternetAccess: info.AllowInternetAccess, AllowOut: []string{}, DenyOut: []string{}, Ask: info.Asks}
	if n := info.Network; n != nil {
		v.AllowOut, v.DenyOut, v.DNSServers = append(v.AllowOut, n.AllowOut...), append(v.DenyOut, n.DenyOut...), n.DNSServers
		if n.EgressProxy != nil {
			v.EgressProxy = n.EgressProxy.Address
		}
		for host, headers := range n.Headers {
			if v.Headers == nil {
				v.Headers = map[string][]string{}
			}
			v.Headers[host] = slices.Sorted(maps.Keys(headers))
		}
		for host, requests := range n.Requests {
			if v.Requests == nil {
				v.Requests = map[string][]string{}
			}
			for _, one := range requests {
				v.Requests[host] = append(v.Requests[host], cmp.Or(strings.Join(one.Methods, ","), "any")+" "+cmp.Or(one.Path, "/**"))
			}
		}
	}
	v.Internet = !slices.Contains(v.DenyOut, sandbox.AllTraffic) && !v.createdWithout()
	return v
}

// createdWithout reports whether the sandbox was created without internet access.
func (v *networkView) createdWithout() bool {
	return v.AllowInternetAccess != nil && !*v.AllowInternetAccess
}

func (v *networkView) rows() [][]string {
	internet := "on"
	switch {
	case slices.Contains(v.DenyOut, sandbox.AllTraffic):
		internet = "off"
	case v.createdWithout():
		internet = "off when created"
	}
	rows := [][]string{
		{"Internet", internet},
		{"Allowed", strings.Join(v.AllowOut, ", ")},
		{"Denied", strings.Join(v.DenyOut, ", ")},
	}
	if len(v.DNSServers) > 0 {
		rows = append(rows, []string{"Name servers", strings.Join(v.DNSServers, ", ")})
	}
	for _, host := range slices.Sorted(maps.Keys(v.Headers)) {
		rows = append(rows, []string{"Headers", host + ": " + strings.Join(v.Headers[host], ", ")})
	}
	for _, host := range slices.Sorted(maps.Keys(v.Requests)) {
		rows = append(rows, []string{"Requests", host + ": " + strings.Join(v.Requests[host], ", ")})
	}
	if v.EgressProxy != "" {
		rows = append(rows, []string{"Proxy", v.EgressProxy})
	}
	if v.Ask {
		rows = append(rows, []string{"Other hosts", "a program is asked"})
	}
	return rows
}
