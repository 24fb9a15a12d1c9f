package lifecycle

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// Template is what a sandbox is made from.
type Template struct {
	ID    string
	Alias string
}

// A Request asks for a sandbox.
type Request struct {
	Template Template
	Lifetime time.Duration
	Secure   bool // the daemon inside asks for a token
	Envs     map[string]string
	Metadata map[string]string
	Internet *bool    // as asked; nil: not
	Network  *Network // as asked; nil: not
	// Egress is what Internet and Network amount to.
	Egress *network.Rules `json:"-"`
}

// Network is what was asked for a sandbox's network.
type Network struct {
	AllowOut, DenyOut  []string
	AllowPublicTraffic *bool // nil: true
	MaskHost           string
	HTTPSPorts         []int
}

// Private reports whether ports ask for the traffic token. n may be nil.
func (n *Network) Private() bool {
	return n != nil && n.AllowPublicTraffic != nil && !*n.AllowPublicTraffic
}

// Sandbox is the record of a running sandbox at one moment. What its maps,
// slices and pointers lead to never changes.
type Sandbox struct {
	ID           string
	Template     Template
	AccessToken  string // "": the daemon asks for none
	TrafficToken string // "": ports ask for none
	Metadata     map[string]string
	Internet     *bool    // as asked when it was created
	Network      *Network // as asked last
	StartedAt    time.Time
	EndAt        time.Time
}

// A Spec says what sandbox to launch.
type Spec struct {
	ID           string
	TemplateID   string
	AccessToken  string            // the daemon's token, "" for a sandbox that is not secured
	TrafficToken string            // asked for on every port but the daemon's, "" for public ones
	MaskHost     string            // Host header that services see, "" for the original; ${PORT} stands for the port
	HTTPSPorts   []int             // whose servers speak TLS
	Envs         map[string]string // create-time environment
	Egress       *network.Rules    // what it may reach
}

// An Instance is a sandbox that runs.
type Instance interface {
	Done() <-chan struct{} // closed when it has ended, whatever ended it
	Err() error            // why it ended; nil before that
	Close() error          // ends it; everything in it is dead when this returns

	// SetEgress changes what it may reach from now on, and cuts what is connected. It
	// does not block.
	SetEgress(rules *network.Rules)
}

// spec makes the record of a sandbox that is asked for, and what to launch.
func (q *Request) spec() (Sandbox, Spec) {
	sb := Sandbox{ID: newID(), Template: q.Template, Metadata: q.Metadata, Internet: q.Internet, Network: q.Network}
	if q.Secure {
		sb.AccessToken = newToken()
	}
	if q.Network.Private() {
		sb.TrafficToken = newToken()
	}
	spec := Spec{
		ID: sb.ID, TemplateID: q.Template.ID, AccessToken: sb.AccessToken, TrafficToken: sb.TrafficToken,
		Envs: q.Envs, Egress: q.Egress,
	}
	if q.Network != nil {
		spec.MaskHost, spec.HTTPSPorts = q.Network.MaskHost, q.Network.HTTPSPorts
	}
	return sb, spec
}

// newID returns 100 random bits: nobody guesses the id of another's sandbox.
func newID() string { return "i" + strings.ToLower(rand.Text())[:20] }

func newToken() string {
	var token [32]byte
	_, _ = rand.Read(token[:]) // never fails
	return hex.EncodeToString(token[:])
}
