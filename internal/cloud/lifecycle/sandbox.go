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

// Template describes the template of a sandbox.
type Template struct {
	ID    string
	Alias string
	// User and Workdir are the default user and working directory of processes; "": the
	// defaults of envd. Home is the home of User, for builds from a snapshot; "": /root, or a
	// directory in /home.
	User, Home, Workdir string
	// Start is a command that every sandbox runs after it was made, or booted from its files.
	// Ready is a command that succeeds once the program of Start can be used. "": none.
	Start, Ready string
	// Engine is the name of the engine that runs the sandbox; "": the server's engine. Image
	// is its container image; nil: none.
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
	Internet *bool    // as requested; nil: not requested
	Network  *Network // as requested; nil: not requested
	// AutoPause pauses the sandbox at the end of its lifetime, instead of ending it.
	// KeepMemory keeps its memory then. With AutoResume, requests resume it while its memory
	// is kept.
	AutoPause, KeepMemory, AutoResume bool
	Volumes                           []VolumeMount
	// Mounts are directories of the host, as requested.
	Mounts []mounts.Mount `json:",omitempty"`
	// Headers allows rules for headers. The sandbox is then started with a certificate
	// authority, which they need.
	Headers bool `json:",omitempty"`
	// Egress holds the rules that result from Internet and Network.
	Egress *network.Rules `json:"-"`
	// Layers are the ids of the layers with which it begins, lowest first. The caller holds
	// them until Create has returned. In a record, they are the layers that the sandbox
	// shares, and holds for as long as it exists.
	Layers []string `json:",omitempty"`
}

// VolumeMount is a volume that a sandbox has, and its path there.
type VolumeMount struct{ ID, Name, Path string }

// rules returns the rules that result from Internet and Network.
func (q *Request) rules() (*network.Rules, error) { return q.Network.Rules(q.Internet) }

// Network is the request for a sandbox's network.
type Network struct {
	AllowOut, DenyOut  []string
	NameServers        []string                     `json:",omitempty"` // reachable, too, if AllowOut has names
	Headers            map[string]map[string]string `json:",omitempty"` // for requests, by host
	Proxy              *network.EgressProxy         `json:",omitempty"` // of outgoing connections
	Ask                bool                         `json:",omitempty"` // a program decides about hosts that no list names
	AllowPublicTraffic *bool                        // nil: true
	MaskHost           string
	HTTPSPorts         []int
}

// Rules returns the rules that result from the request and from the requested internet
// access; a nil internet means that none was requested. n may be nil. An invalid rule is a
// [*network.RuleError].
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

// Sandbox is the record of a sandbox at one moment. The values behind its maps, slices and
// pointers never change.
type Sandbox struct {
	ID           string
	Request                // as it was created; Network as requested last
	AccessToken  string    // "": envd needs none
	TrafficToken string    // "": ports need none
	State        State     // never Killing
	StartedAt    time.Time // the latest start or resume
	EndAt        time.Time // the end of its lifetime; the time of its pause, if it is paused
	// Memory means that the processes of a paused sandbox are kept, stopped or in the store.
	// Unresponsive means that envd did not answer at the pause.
	Memory, Unresponsive bool
}

// Runs reports whether the sandbox runs, as its clients see it: during a snapshot its
// processes stop for a moment.
func (sb *Sandbox) Runs() bool { return sb.State == Running || sb.State == Snapshotting }

// Wakes reports whether a request resumes the sandbox, which is paused or about to run.
func (sb *Sandbox) Wakes() bool { return sb.AutoResume && sb.Memory && !sb.Unresponsive }

// A Spec describes a sandbox to launch.
type Spec struct {
	ID           string
	Template     Template
	AccessToken  string            // envd's token, "" for a sandbox that is not secured
	TrafficToken string            // required on every port except envd's, "" for public ones
	MaskHost     string            // Host header for its servers, "" for the original; ${PORT} stands for the port
	HTTPSPorts   []int             // ports whose servers speak TLS
	Envs         map[string]string // create-time environment
	Metadata     map[string]string // as requested
	Egress       *network.Rules    // the rules for its connections
	Asks         *network.Asks     // its questions about hosts, if Egress asks
	Layers       []string          // directories of shared files, lowest first
	Files        string            // directory of its saved files, above Layers; "": none
	Memory       string            // directory of its saved memory; "": its processes start anew
	Volumes      []VolumeMount
	Mounts       []mounts.Mount
	Headers      bool // Egress may have headers, now or later
	// AutoPause means that it is paused later, with its memory if KeepMemory.
	AutoPause, KeepMemory bool
}

// An Instance is a running sandbox.
type Instance interface {
	Done() <-chan struct{} // closed when it has ended, for any reason; Close waits for the clean-up
	Err() error            // the reason for its end; nil before that, and known to no client earlier
	Close() error          // ends it; all its processes are dead when this returns

	// Check returns nil if the engine promises a feature, and otherwise a [*RefusedError]
	// with the reason. It is called before the feature is used.
	Check(f engine.Feature) error

	// SetEgress changes the rules for the sandbox's connections, and cuts its open
	// connections. It does not block.
	SetEgress(rules *network.Rules)

	// Pause ends every connection into the sandbox and stops its processes; their
	// memory stays. If it fails the sandbox runs on. Resume is its reverse. Both are
	// idempotent, and Close ends a paused sandbox as any other.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// SaveMemory writes the memory of a paused sandbox to dir, an empty directory, and syncs
	// it. A Spec's Memory may then name dir, together with the Files that Save saves
	// afterwards. It is called only if the engine promises [engine.SavedMemory].
	SaveMemory(ctx context.Context, dir string) error
	// Save copies the written files of a paused sandbox to dir, and syncs them. dir is empty
	// but for a directory with its memory. A Spec's Files may then name dir.
	Save(ctx context.Context, dir string) error
	// Checkpoint is SaveMemory, unless memory is "", and [layers.Save] for a running sandbox.
	// Its processes stop for that time, and connections into it wait. If it cannot run on
	// after that, it ends. If it is the memory that cannot be saved, the error matches
	// [ErrMemory].
	Checkpoint(ctx context.Context, dir, memory string, share bool) (shared bool, err error)
	// Memory returns the number of bytes of memory that it uses; 0: unknown.
	Memory() int64
	// Healthy returns an error if the sandbox's envd does not answer.
	Healthy(ctx context.Context) error
}

// newSandbox returns the record of a requested sandbox. Its tokens are derived from its id,
// so they are the same for as long as the seed is.
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

// spec returns the spec to launch a sandbox with saved files and memory; "": none.
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
