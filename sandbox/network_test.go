package sandbox

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestUpdateNetwork checks that fields that UpdateNetwork leaves out are sent with the
// service's values.
func TestUpdateNetwork(t *testing.T) {
	t.Parallel()
	off, on := false, true
	for name, test := range map[string]struct {
		has  string // members of the sandbox
		set  *UpdateNetworkParams
		want string
	}{
		"others stay": {
			`"network":{"allowOut":["a.test"],"denyOut":["0.0.0.0/0"],"dnsServers":["192.0.2.1"],"rules":{"a.test":[{"transform":{"headers":{"A":"b"}}}]},"egressProxy":{"address":"p.test:1080"},"ask":true}`,
			&UpdateNetworkParams{AllowOut: []string{"b.test"}},
			`{"allowOut":["b.test"],"denyOut":["0.0.0.0/0"],"dnsServers":["192.0.2.1"],"rules":{"a.test":[{"transform":{"headers":{"A":"b"}}}]},"ask":true,"egressProxy":{"address":"p.test:1080"}}`,
		},
		"lists are cleared": {`"network":{"allowOut":["192.0.2.1"],"denyOut":["192.0.2.0/24"]}`, &UpdateNetworkParams{AllowOut: []string{}}, `{"denyOut":["192.0.2.0/24"]}`},
		"off":               {`"network":{"denyOut":["192.0.2.0/24"]}`, &UpdateNetworkParams{Internet: &off}, `{"denyOut":["192.0.2.0/24","0.0.0.0/0"]}`},
		"off once":          {`"network":{"denyOut":["0.0.0.0/0"]}`, &UpdateNetworkParams{Internet: &off}, `{"denyOut":["0.0.0.0/0"]}`},
		"on":                {`"allowInternetAccess":false,"network":{"denyOut":["0.0.0.0/0"]}`, &UpdateNetworkParams{Internet: &on}, `{}`},
		"created without":   {`"allowInternetAccess":false`, &UpdateNetworkParams{DenyOut: []string{"192.0.2.0/24"}}, `{"denyOut":["192.0.2.0/24"],"allow_internet_access":false}`},
		"nothing":           {`"state":"running"`, nil, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := updating(t, test.has)
			must.Do(t, s.client().UpdateNetwork(t.Context(), testID, test.set))
			if n := s.seen("PUT /sandboxes/" + testID + "/network " + test.want); n != 1 {
				t.Errorf("got %v, want the rules %s", s.calls, test.want)
			}
		})
	}
}

// The password of a proxy would be lost, so nothing is sent. A sandbox that is not there is gone.
func TestUpdateNetworkRefused(t *testing.T) {
	t.Parallel()
	for _, proxy := range []string{`{"address":"p.test:1080","username":"u"}`, `{"address":"p.test:1080","tls":{"enabled":true}}`} {
		s := updating(t, `"network":{"egressProxy":`+proxy+`}`)
		err := s.client().UpdateNetwork(t.Context(), testID, &UpdateNetworkParams{DenyOut: []string{AllTraffic}})
		must.Is(t, err, errors.ErrUnsupported)
		if n := s.seen("PUT"); n != 0 {
			t.Errorf("%s: %d requests change the rules, want none", proxy, n)
		}
	}
	s := newService(t)
	s.control = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(404)
		fmt.Fprint(w, `{"code":404,"message":"no such sandbox"}`)
	}
	must.Is(t, s.client().UpdateNetwork(t.Context(), testID, nil), ErrGone)
}

// updating returns a service whose sandbox has these members.
func updating(t *testing.T, has string) *service {
	t.Helper()
	s := newService(t)
	s.control = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/local/features":
			w.WriteHeader(200)
			fmt.Fprint(w, `{"ask":true}`)
		case r.Method == http.MethodGet:
			w.WriteHeader(200)
			fmt.Fprintf(w, `{"sandboxID":%q,%s}`, testID, has)
		default:
			w.WriteHeader(204)
		}
	}
	return s
}
