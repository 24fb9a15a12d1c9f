package lifecycle

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// Template is what a sandbox is made from.
type Template struct {
	ID    string
	Alias string
	// User and Workdir are who processes run as and where, unless they are asked for
	// otherwise; "": the defaults of envd. Home is the home of User, for builds from a snapshot;
	// "": /root or a directory in /home.
	User, Home, Workdir string
	// Start is a command that every sandbox runs when it has been made or booted from its
	// files, and Ready one that succeeds when what Start runs can be used; "": none.
	Start, Ready string
	// Engine runs the sandbox; "": that of the server. Image is the container image that it
	// is made from; nil: none.
	Engine engine.Name
	Image  *engine.Image
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
	// AutoPause: it is paused, not ended, when its lifetime is over; KeepMemory: with
	// its memory. AutoResume: requests resume it while its memory is kept.
	AutoPause, KeepMemory, AutoResume bool
	Volumes                           []VolumeMount
	// Mounts are directories of the host, as asked.
	Mounts []mounts.Mount `json:",omitempty"`
	// Headers: it can have rules for headers, which takes a certificate authority that it is
	// started with.
	Headers bool `json:",omitempty"`
	// Egress holds the rules that result from Internet and Network.
	Egress *network.Rules `json:"-"`
	// Layers are the ids of the layers that it begins with, lowest first, and that the
	// caller holds until Create has returned. In a record they are those that it shares,
	// which it holds for as long as it is there.
	Layers []string `json:",omitempty"`
}

// VolumeMount is a volume that a sandbox has, and where.
type VolumeMount struct{ ID, Name, Path string }

// rules returns the rules that result from Internet and Network.
func (q *Request) rules() (*network.Rules, error) { return q.Network.Rules(q.Internet) }

// Network is what was requested for a sandbox's network.
type Network struct {
	AllowOut, DenyOut  []string
	NameServers        []string                     `json:",omitempty"` // reachable, too, if AllowOut has names
	Headers            map[string]map[string]string `json:",omitempty"` // for requests, by host
	Proxy              *network.EgressProxy         `json:",omitempty"` // of outgoing connections
	Ask                bool                         `json:",omitempty"` // a program is asked about hosts that no list names
	AllowPublicTraffic *bool                        // nil: true
	MaskHost           string
	HTTPSPorts         []int
}

// Rules returns the rules that result from what was requested, and from the internet access
// that was; nil: none was. n may be nil. An invalid rule is a [*network.RuleError].
func (n *Network) Rules(internet *bool) (*network.Rules, error) {
	if n == nil {
		n = &Network{}
	}
	allow, err := network.AllowNameServers(n.AllowOut, n.NameServers)
	if err != nil {
		return nil, err
	}
	rules, err := network.ParseRules(internet == nil || *internet, allow, n.DenyOut)
	if err != nil {
		return nil, err
	}
	if n.Ask {
		if rules, err = rules.WithAsking(); err != nil {
			return nil, err
		}
	}
	if rules, err = rules.WithProxy(n.Proxy); err != nil {
		return nil, err
	}
	return rules.WithHeaders(n.Headers)
}

// Private reports whether ports require the traffic token. n may be nil.
func (n *Network) Private() bool {
	return n != nil && n.AllowPublicTraffic != nil && !*n.AllowPublicTraffic
}

// Sandbox is the record of a sandbox at one moment. What its maps, slices and pointers
// refer to never changes.
type Sandbox struct {
	ID           string
	Request                // what it was created with; Network as requested last
	AccessToken  string    // "": envd requires none
	TrafficToken string    // "": ports require none
	State        State     // Killing is never seen
	StartedAt    time.Time // or resumed last
	EndAt        time.Time // when its lifetime is over; when it was paused, if it is
	// Memory: the processes of a paused sandbox are kept, stopped or in the store;
	// Unresponsive: envd was not one that answered.
	Memory, Unresponsive bool
}

// Runs reports whether it runs, as its clients see it: for the moment of a snapshot its
// processes stand still.
func (sb *Sandbox) Runs() bool { return sb.State == Running || sb.State == Snapshotting }

// Wakes reports whether a request resumes it, which is paused or about to run.
func (sb *Sandbox) Wakes() bool { return sb.AutoResume && sb.Memory && !sb.Unresponsive }

// A Spec describes a sandbox to launch.
type Spec struct {
	ID           string
	Template     Template
	AccessToken  string            // envd's token, "" for a sandbox that is not secured
	TrafficToken string            // required on every port except envd's, "" for public ones
	MaskHost     string            // Host header that services see, "" for the original; ${PORT} stands for the port
	HTTPSPorts   []int             // ports whose servers speak TLS
	Envs         map[string]string // create-time environment
	Metadata     map[string]string // as asked
	Egress       *network.Rules    // what it may reach
	Asks         *network.Asks     // what was asked about that, if Egress wants it
	Layers       []string          // directories of files that it shares, lowest first
	Files        string            // directory of saved files that it begins with, above Layers; "": none
	Memory       string            // directory of saved memory that it goes on with; "": its processes start anew
	Volumes      []VolumeMount
	Mounts       []mounts.Mount
	Headers      bool // Egress may have headers, now or later
	// AutoPause: it is to be paused later, with its memory if KeepMemory.
	AutoPause, KeepMemory bool
}

// An Instance is a running sandbox.
type Instance interface {
	Done() <-chan struct{} // closed when it has ended, for whatever reason; Close waits until nothing is left
	Err() error            // why it ended; nil before that, and known to no client earlier
	Close() error          // ends it; everything in it is dead when this returns

	// Check returns why the engine cannot do something that it does not promise: a
	// [*RefusedError]. It is asked before that is tried.
	Check(f engine.Feature) error

	// SetEgress changes what the sandbox may reach from now on, and cuts its open
	// connections. It does not block.
	SetEgress(rules *network.Rules)

	// Pause ends every connection into the sandbox and stops its processes; their
	// memory stays. If it fails the sandbox runs on. Resume is its reverse. Both are
	// idempotent, and Close ends a paused sandbox as any other.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// SaveMemory writes the memory of a paused sandbox to dir, an empty directory, and syncs
	// it. A Spec's Memory may name it then, with the Files that Save saves afterwards. Only
	// one whose engine promises [engine.SavedMemory] is asked for it.
	SaveMemory(ctx context.Context, dir string) error
	// Save copies what was written in a paused sandbox to dir, which is empty but for a
	// directory of its memory, and syncs it. A Spec's Files may name it then.
	Save(ctx context.Context, dir string) error
	// Checkpoint is SaveMemory, unless memory is "", and [layers.Save] for a running sandbox.
	// Its processes stop for that time, and connections into it wait. If it cannot run on
	// after that, it ends. Where it is the memory that cannot be saved the error matches
	// [ErrMemory].
	Checkpoint(ctx context.Context, dir, memory string, share bool) (shared bool, err error)
	// Memory returns the bytes of memory that it uses; 0 if that is not known.
	Memory() int64
	// Healthy returns an error if the sandbox's envd does not answer.
	Healthy(ctx context.Context) error
}

// newSandbox returns the record of a requested sandbox. Its tokens are derived from its
// id, and so the same for as long as the seed is.
func newSandbox(q Request, id string, seed []byte) Sandbox {
	sb := Sandbox{ID: id, Request: q}
	if q.Secure {
		sb.AccessToken = token(seed, id)
	}
	if q.Network.Private() {
		sb.TrafficToken = token(seed, "traffic:"+id)
	}
	return sb
}

// spec returns what to launch a sandbox with, which begins with saved files and memory unless
// they are "".
func (rec *record) spec(files, memory string) (Spec, error) {
	sb, egress := &rec.Sandbox, rec.Egress
	if egress == nil {
		var err error
		if egress, err = sb.rules(); err != nil {
			return Spec{}, err
		}
	}
	spec := Spec{
		ID: sb.ID, Template: sb.Template, AccessToken: sb.AccessToken, TrafficToken: sb.TrafficToken,
		Envs: sb.Envs, Metadata: sb.Metadata, Egress: egress, Layers: rec.base.Layers, Files: files, Memory: memory, Volumes: sb.Volumes, Mounts: sb.Mounts,
		Headers: sb.Headers, Asks: rec.asks, AutoPause: sb.AutoPause, KeepMemory: sb.KeepMemory,
	}
	if sb.Network != nil {
		spec.MaskHost, spec.HTTPSPorts = sb.Network.MaskHost, sb.Network.HTTPSPorts
	}
	return spec, nil
}

// newID returns an id of 100 random bits, so that nobody can guess the id of another
// sandbox.
func newID() string { return "i" + strings.ToLower(rand.Text())[:idLength-1] }

const idLength = 21

func token(seed []byte, subject string) string {
	mac := hmac.New(sha256.New, seed)
	_, _ = mac.Write([]byte(subject)) // never fails
	return hex.EncodeToString(mac.Sum(nil))
}
