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
	Build string `json:",omitempty"` // id of the build; "": not known
	Alias string
	// User and Workdir are the default user and working directory of processes. "" means the
	// defaults of envd. Home is the home directory of User, for builds from a snapshot. An empty
	// Home means /root or a directory in /home.
	User, Home, Workdir string
	// Start is a command. Every sandbox runs this command after the sandbox was created, and after it
	// was booted from its files. Ready is a command that succeeds once the program of Start can be
	// used. An empty Start or Ready means that there is no such command.
	Start, Ready string
	// Engine is the name of the engine that runs the sandbox. "" means the server's engine.
	// Image is the container image of the sandbox. nil means that the sandbox has no image.
	Engine engine.Name
	Image  *engine.Image
	// Resources are the resources that the template asks for. A sandbox has less if the server bounds
	// them.
	Resources engine.Resources `json:",omitzero"`
}

// A Request describes a sandbox to create.
type Request struct {
	Template Template
	Lifetime time.Duration
	Secure   bool // envd requires a token
	Envs     map[string]string
	Metadata map[string]string
	Internet *bool    // requested internet access; nil: not requested
	Network  *Network // requested network; nil: not requested
	// AutoPause means that the end of the lifetime pauses the sandbox instead of ending it. KeepMemory
	// means that such a pause keeps the memory. AutoResume means that a request to the paused sandbox
	// resumes it, as long as its memory is kept.
	AutoPause, KeepMemory, AutoResume bool
	// Idle is the time without use after which the sandbox ends, as at the end of its lifetime. Zero means
	// that there is no such limit.
	Idle    time.Duration `json:",omitempty"`
	Volumes []VolumeMount
	// Mounts lists the directories of the host that were requested as mounts.
	Mounts []mounts.Mount `json:",omitempty"`
	// Resources are the requested resources of this sandbox, in place of those of the template.
	Resources engine.Resources `json:",omitzero"`
	// Headers allows rules for headers and requests. The sandbox then starts with a certificate authority, because
	// such rules need one.
	Headers bool `json:",omitempty"`
	// Egress contains the rules that result from Internet and Network.
	Egress *network.Rules `json:"-"`
	// Layers lists the ids of the layers with which the sandbox begins, lowest first. The caller holds
	// these layers until Create has returned. In a record, Layers lists the layers that the sandbox
	// shares. The record holds these layers as long as the sandbox exists.
	Layers []string `json:",omitempty"`
}

// VolumeMount is a volume of a sandbox, with the path of its mount.
type VolumeMount struct{ ID, Name, Path string }

// rules returns the rules that result from Internet and Network.
func (q *Request) rules() (*network.Rules, error) { return q.Network.Rules(q.Internet) }

// Network is the request for a sandbox's network.
type Network struct {
	AllowOut, DenyOut  []string
	NameServers        []string                     `json:",omitempty"` // if AllowOut contains names, these addresses are reachable, too
	Headers            map[string]map[string]string `json:",omitempty"` // headers to add to requests, keyed by host
	Requests           map[string][]network.Request `json:",omitempty"` // the only requests to send, keyed by host
	Proxy              *network.EgressProxy         `json:",omitempty"` // proxy for outgoing connections
	Ask                bool                         `json:",omitempty"` // a program decides about hosts that no list names
	AllowPublicTraffic *bool                        // nil: true
	MaskHost           string
	HTTPSPorts         []int
}

// Rules returns the rules that result from n and from the requested internet access. If internet is
// nil, no internet access was requested. n may be nil. If a rule is invalid, the error is a
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
	if rules, err = rules.WithRequests(n.Requests); err != nil {
		return nil, err
	}
	return rules.WithHeaders(n.Headers)
}

// Private reports whether ports require the traffic token. n may be nil.
func (n *Network) Private() bool {
	return n != nil && n.AllowPublicTraffic != nil && !*n.AllowPublicTraffic
}

// Sandbox is the record of a sandbox at one time. The values of its maps, slices and pointers
// never change.
type Sandbox struct {
	ID           string
	Request                // as requested at creation; Network, AutoPause and Resources as requested last
	AccessToken  string    // "": envd requires no token
	TrafficToken string    // "": ports require no token
	State        State     // never Killing
	StartedAt    time.Time // time of the latest start or resume
	EndAt        time.Time // end of the lifetime; for a paused sandbox, the time of the pause
	// Memory means that the processes of a paused sandbox are kept: stopped, or saved in the store.
	// Unresponsive means that envd did not answer at the pause.
	Memory, Unresponsive bool
}

// Runs reports whether the sandbox runs from the point of view of clients. It returns true during a
// snapshot and a resize, although the processes stop for a moment then.
func (sb *Sandbox) Runs() bool {
	return sb.State == Running || sb.State == Snapshotting || sb.State == Resizing
}

// PublicPorts reports whether the ports of programs require no token. It may return true even if
// the sandbox has a TrafficToken.
func (sb *Sandbox) PublicPorts() bool { return !sb.Network.Private() }

// Wakes reports whether a request to the sandbox resumes it. Wakes may be called only for a sandbox
// that is paused or about to run.
func (sb *Sandbox) Wakes() bool { return sb.AutoResume && sb.Memory && !sb.Unresponsive }

// A Spec describes a sandbox to launch.
type Spec struct {
	ID           string
	Template     Template
	AccessToken  string            // token of envd; "": the sandbox is not secured
	TrafficToken string            // required on every port except envd's; "": ports are public
	PublicPorts  bool              // only the ports of the interpreter require TrafficToken, and accept AccessToken in its place
	MaskHost     string            // Host header for the sandbox's servers; "": unchanged; ${PORT} is replaced by the port
	HTTPSPorts   []int             // ports whose servers use TLS
	Envs         map[string]string // environment that was set at creation
	Metadata     map[string]string // metadata, as requested
	Egress       *network.Rules    // rules for outgoing connections
	Asks         *network.Asks     // questions about hosts, if Egress requires such questions
	Layers       []string          // directories of shared files, lowest first
	Files        string            // directory of saved files, above Layers; "": none
	Memory       string            // directory of saved memory; "": processes start anew
	Volumes      []VolumeMount
	Mounts       []mounts.Mount
	Resources    engine.Resources // requested for this sandbox, in place of those of the template
	Headers      bool             // Egress may contain headers, now or later
	Use          *Use             // to be noted at each use of the sandbox; nil: the sandbox has no idle limit
	// AutoPause means that the sandbox will be paused, with its memory if KeepMemory is set. With
	// AutoResume, requests then resume it.
	AutoPause, KeepMemory, AutoResume bool
}

// An Instance is a running sandbox.
type Instance interface {
	Done() <-chan struct{} // closed when the instance has ended, for any reason; Close waits for the clean-up
	Err() error            // reason for the end; nil before the end. Err must return the reason before any client can learn of the end.
	Close() error          // ends the instance; when it returns, all processes are dead

	// Check returns nil if the engine promises a feature. Otherwise it returns a
	// [*RefusedError] with the reason. It is called before the feature is used.
	Check(f engine.Feature) error

	// SetEgress replaces the rules for the sandbox's outgoing connections, and closes open
	// connections. It does not block.
	SetEgress(rules *network.Rules)

	// Suspends reports whether Pause ends the processes, and keeps only the files of the sandbox's
	// home. Resume then starts the sandbox again, with these files.
	Suspends() bool
	// Pause ends every connection into the sandbox and stops the processes, which keep their
	// memory. If it fails, the sandbox continues to run. Resume is the reverse of Pause. Both
	// are idempotent. Close also ends a paused sandbox.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// SaveMemory writes the memory of a paused sandbox to dir, an empty directory, and syncs it. A
	// later call of Save saves the files. A Spec with these files can then have dir as its Memory.
	// SaveMemory is called only if the engine promises [engine.SavedMemory].
	SaveMemory(ctx context.Context, dir string) error
	// Save copies to dir the files that a paused sandbox wrote, and syncs the copies. At the call,
	// dir is empty or contains only the directory with the memory. Afterwards, dir can be the Files
	// of a Spec.
	Save(ctx context.Context, dir string) error
	// Checkpoint saves the files of a running sandbox to dir. dir, share and shared are those of
	// [layers.Save]. If memory is not "", Checkpoint also saves the memory to the directory memory,
	// like SaveMemory. The processes stop meanwhile, and connections into the sandbox wait. If the
	// sandbox cannot continue afterwards, it ends. If the memory cannot be saved, the error matches
	// [ErrMemory].
	Checkpoint(ctx context.Context, dir, memory string, share bool) (shared bool, err error)
	// Resize changes the resources of a running sandbox to r, as if it was launched with r. It is called
	// only if the engine promises [engine.Resizes]. If Resize fails, the sandbox keeps its resources. If
	// the sandbox uses more than r allows, the error is an [*engine.InUseError].
	Resize(ctx context.Context, r engine.Resources) error
	// Memory returns the number of bytes of memory in use. It returns 0 if the number is
	// unknown.
	Memory() int64
	// Busy reports whether the sandbox is in use although no bytes pass: code runs in one of its kernels,
	// or a client follows a command. It is called only for a sandbox with an idle limit.
	Busy(ctx context.Context) (bool, error)
	// Healthy returns an error if the sandbox's envd does not answer.
	Healthy(ctx context.Context) error
}

// newSandbox returns the record of a requested sandbox. The tokens of the sandbox are derived
// from its id and the seed, so the tokens stay the same as long as the seed does not change.
func (r *Registry) newSandbox(q Request, id string) Sandbox {
	q.Secure = q.Secure || r.options.Secure
	sb, seed := Sandbox{ID: id, Request: q}, r.store.Seed()
	if q.Secure {
		sb.AccessToken = token(seed, id)
	}
	if q.Network.Private() || r.options.TrafficTokens {
		sb.TrafficToken = token(seed, "traffic:"+id)
	}
	return sb
}

// spec returns the spec for launching a sandbox with the saved files in the directory files and
// the saved memory in the directory memory. "" means no saved files, or no saved memory.
func (rec *record) spec(files, memory string) (Spec, error) {
	sb, egress := &rec.Sandbox, rec.Egress
	if egress == nil {
		var err error
		if egress, err = sb.rules(); err != nil {
			return Spec{}, err
		}
	}
	spec := Spec{
		ID: sb.ID, Template: sb.Template, AccessToken: sb.AccessToken, TrafficToken: sb.TrafficToken, PublicPorts: sb.PublicPorts(),
		Envs: sb.Envs, Metadata: sb.Metadata, Egress: egress, Layers: rec.base.Layers, Files: files, Memory: memory, Volumes: sb.Volumes, Mounts: sb.Mounts, Resources: sb.Resources,
		Headers: sb.Headers, Asks: rec.asks, Use: rec.use, AutoPause: sb.AutoPause, KeepMemory: sb.KeepMemory, AutoResume: sb.AutoResume,
	}
	if sb.Network != nil {
		spec.MaskHost, spec.HTTPSPorts = sb.Network.MaskHost, sb.Network.HTTPSPorts
	}
	return spec, nil
}

// newID returns an id of 100 random bits, so that the ids of other sandboxes cannot be guessed.
func newID() string { return "i" + strings.ToLower(rand.Text())[:idLength-1] }

const idLength = 21

func token(seed []byte, subject string) string {
	mac := hmac.New(sha256.New, seed)
	_, _ = mac.Write([]byte(subject)) // never fails
	return hex.EncodeToString(mac.Sum(nil))
}
