package lifecycle

import (
	"context"
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
	Secure   bool // envd inside requires a token
	Envs     map[string]string
	Metadata map[string]string
	Internet *bool    // as asked; nil: not
	Network  *Network // as asked; nil: not
	// Egress holds the rules that result from Internet and Network.
	Egress *network.Rules `json:"-"`
}

// Network is what was requested for a sandbox's network.
type Network struct {
	AllowOut, DenyOut  []string
	AllowPublicTraffic *bool // nil: true
	MaskHost           string
	HTTPSPorts         []int
}

// Private reports whether ports require the traffic token. n may be nil.
func (n *Network) Private() bool {
	return n != nil && n.AllowPublicTraffic != nil && !*n.AllowPublicTraffic
}

// Sandbox is the record of a running sandbox at one moment. What its maps, slices and
// pointers refer to never changes.
type Sandbox struct {
	ID           string
	Template     Template
	AccessToken  string // "": envd requires none
	TrafficToken string // "": ports require none
	Metadata     map[string]string
	Internet     *bool    // as requested when it was created
	Network      *Network // as requested last
	StartedAt    time.Time
	EndAt        time.Time
}

// A Spec describes a sandbox to launch.
type Spec struct {
	ID           string
	TemplateID   string
	AccessToken  string            // envd's token, "" for a sandbox that is not secured
	TrafficToken string            // required on every port except envd's, "" for public ones
	MaskHost     string            // Host header that services see, "" for the original; ${PORT} stands for the port
	HTTPSPorts   []int             // ports whose servers speak TLS
	Envs         map[string]string // create-time environment
	Egress       *network.Rules    // what it may reach
	Files        string            // directory of saved files that it begins with; "": none
}

// An Instance is a running sandbox.
type Instance interface {
	Done() <-chan struct{} // closed when it has ended, for whatever reason
	Err() error            // why it ended; nil before that
	Close() error          // ends it; everything in it is dead when this returns

	// SetEgress changes what the sandbox may reach from now on, and cuts its open
	// connections. It does not block.
	SetEgress(rules *network.Rules)

	// Pause ends every connection into the sandbox and stops its processes; their
	// memory stays. If it fails the sandbox runs on. Resume is its reverse. Both are
	// idempotent, and Close ends a paused sandbox as any other.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Save copies what was written in a paused sandbox to dir, an empty directory, and
	// syncs it. A Spec's Files may name it then.
	Save(ctx context.Context, dir string) error
	// Memory returns the bytes of memory that it uses; 0 if that is not known.
	Memory() int64
	// Healthy returns an error if the sandbox's envd does not answer.
	Healthy(ctx context.Context) error
}

// spec returns the record of a requested sandbox, and the spec to launch it with.
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

// newID returns an id of 100 random bits, so that nobody can guess the id of another
// sandbox.
func newID() string { return "i" + strings.ToLower(rand.Text())[:20] }

func newToken() string {
	var token [32]byte
	_, _ = rand.Read(token[:]) // never fails
	return hex.EncodeToString(token[:])
}
