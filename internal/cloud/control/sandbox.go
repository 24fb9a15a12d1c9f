package control

import (
	"net/http"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
)

// answer is the object that create, connect and resume return.
type answer struct {
	TemplateID         string `json:"templateID"`
	SandboxID          string `json:"sandboxID"`
	ClientID           string `json:"clientID"`
	EnvdVersion        string `json:"envdVersion"`
	Alias              string `json:"alias,omitempty"`
	EnvdAccessToken    string `json:"envdAccessToken,omitempty"`
	TrafficAccessToken string `json:"trafficAccessToken,omitempty"`
	Domain             string `json:"domain,omitempty"`
}

// listed is an element of a list of sandboxes.
type listed struct {
	TemplateID   string            `json:"templateID"`
	SandboxID    string            `json:"sandboxID"`
	ClientID     string            `json:"clientID"`
	Alias        string            `json:"alias,omitempty"`
	StartedAt    string            `json:"startedAt"` // text, because encoding/json checks the text of each time.Time again
	EndAt        string            `json:"endAt"`
	CPUCount     int               `json:"cpuCount"`
	MemoryMB     int               `json:"memoryMB"`
	DiskSizeMB   int               `json:"diskSizeMB"`
	State        string            `json:"state"`
	EnvdVersion  string            `json:"envdVersion"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	VolumeMounts []volumeMount     `json:"volumeMounts"`
	Unresponsive bool              `json:"envdUnresponsiveAtPause,omitempty"`
}

// detail is the object that GET returns for one sandbox.
type detail struct {
	listed
	EnvdAccessToken     string          `json:"envdAccessToken,omitempty"`
	AllowInternetAccess *bool           `json:"allowInternetAccess,omitempty"`
	Domain              string          `json:"domain,omitempty"`
	Network             *networkRequest `json:"network,omitempty"`
	Lifecycle           onTimeout       `json:"lifecycle"`
	PauseMode           string          `json:"pauseMode,omitempty"` // "full" or "filesystem" for a paused sandbox
	Engine              string          `json:"engine,omitempty"`    // the service has no fields Engine and Mounts
	Mounts              []hostMount     `json:"mounts,omitempty"`
	Image               string          `json:"image,omitempty"`       // nor the field Image
	IdleTimeout         int             `json:"idleTimeout,omitempty"` // nor this; seconds
}

// onTimeout is the action at the end of a sandbox's lifetime.
type onTimeout struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

func (s *Service) answer(sb lifecycle.Sandbox) answer {
	return answer{
		TemplateID: sb.Template.ID, SandboxID: sb.ID, ClientID: clientID, EnvdVersion: s.options.EnvdVersion,
		Alias: sb.Template.Alias, EnvdAccessToken: sb.AccessToken, TrafficAccessToken: sb.TrafficToken,
		Domain: s.options.Domain,
	}
}

func (s *Service) listed(sb lifecycle.Sandbox) listed {
	has := s.has(sb)
	return listed{
		TemplateID: sb.Template.ID, SandboxID: sb.ID, ClientID: clientID, Alias: sb.Template.Alias,
		StartedAt: sb.StartedAt.Format(time.RFC3339Nano), EndAt: sb.EndAt.Format(time.RFC3339Nano),
		CPUCount: has.CPUs, MemoryMB: has.MemoryMB, DiskSizeMB: has.DiskMB,
		State: stateOf(sb), EnvdVersion: s.options.EnvdVersion, Metadata: sb.Metadata, VolumeMounts: mountAnswer(sb.Volumes),
		Unresponsive: sb.Unresponsive,
	}
}

// The states that clients receive. A sandbox in transition is reported as paused, because it does
// not accept requests.
const (
	stateRunning = "running"
	statePaused  = "paused"
)

func stateOf(sb lifecycle.Sandbox) string {
	if sb.Runs() {
		return stateRunning
	}
	return statePaused
}

// Modes of a pause.
const (
	modeFull  = "full" // with memory
	modeFiles = "filesystem"
)

func (s *Service) detail(sb lifecycle.Sandbox) detail {
	d := detail{
		listed: s.listed(sb), EnvdAccessToken: sb.AccessToken, AllowInternetAccess: sb.Internet,
		Network: networkAnswer(sb.Network), Lifecycle: onTimeout{AutoResume: sb.AutoResume, OnTimeout: "kill"},
		Engine: string(s.engineOf(sb.Template.Engine)), Mounts: hostMountAnswer(s.options.Mounts, sb.Mounts), IdleTimeout: int(sb.Idle / time.Second),
	}
	if sb.Template.Image != nil {
		d.Image = sb.Template.Image.Reference
	}
	if sb.AutoPause {
		d.Lifecycle.OnTimeout = "pause"
	}
	switch {
	case sb.Runs():
		d.Domain = s.options.Domain
	case sb.State != lifecycle.Paused:
	case sb.Memory:
		d.PauseMode = modeFull
	default:
		d.PauseMode = modeFiles
	}
	return d
}

func (s *Service) get(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.find(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, s.detail(sb))
	return nil
}

func (s *Service) kill(w http.ResponseWriter, r *http.Request) error {
	id, err := sandboxID(r)
	if err != nil {
		return err
	}
	sb, _ := s.sandboxes.Get(id) // if the sandbox does not exist, Kill returns the error
	if err := s.sandboxes.Kill(id); err != nil {
		return err
	}
	if sb.State == lifecycle.Paused {
		s.deleted(w, r)
	} else {
		noContent(w)
	}
	return nil
}

// find returns the sandbox that the path names.
func (s *Service) find(r *http.Request) (lifecycle.Sandbox, error) {
	id, err := sandboxID(r)
	if err != nil {
		return lifecycle.Sandbox{}, err
	}
	return s.sandboxes.Get(id)
}

// sandboxID returns the sandbox id in the path. It cuts off the client id, which old clients append to the
// sandbox id.
func sandboxID(r *http.Request) (string, error) {
	id, client, _ := strings.Cut(r.PathValue("id"), "-")
	if id == "" || strings.Contains(client, "-") || strings.ContainsFunc(id, notLowerAlphanumeric) {
		return "", errorf(http.StatusBadRequest, "Invalid sandbox ID")
	}
	return id, nil
}

func notLowerAlphanumeric(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }
