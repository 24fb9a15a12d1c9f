package control

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

// sandbox is the record of one sandbox that runs. All but endAt and network never
// changes; these are guarded by Service.mu.
type sandbox struct {
	id           string
	template     template
	accessToken  string
	trafficToken string
	metadata     map[string]string
	internet     *bool // as asked; nil: not
	network      *networkRequest
	startedAt    time.Time
	endAt        time.Time
	instance     Instance
}

// answer is the object that create, connect and resume give.
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
	StartedAt    time.Time         `json:"startedAt"`
	EndAt        time.Time         `json:"endAt"`
	CPUCount     int               `json:"cpuCount"`
	MemoryMB     int               `json:"memoryMB"`
	DiskSizeMB   int               `json:"diskSizeMB"`
	State        string            `json:"state"`
	EnvdVersion  string            `json:"envdVersion"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	VolumeMounts []struct{}        `json:"volumeMounts"`
}

// detail is the object that GET of one sandbox gives.
type detail struct {
	listed
	EnvdAccessToken     string          `json:"envdAccessToken,omitempty"`
	AllowInternetAccess *bool           `json:"allowInternetAccess,omitempty"`
	Domain              string          `json:"domain,omitempty"`
	Network             *networkRequest `json:"network,omitempty"`
	Lifecycle           lifecycle       `json:"lifecycle"`
}

type lifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

func (s *Service) answer(sb *sandbox) answer {
	return answer{
		TemplateID: sb.template.id, SandboxID: sb.id, ClientID: clientID, EnvdVersion: s.options.EnvdVersion,
		Alias: sb.template.alias, EnvdAccessToken: sb.accessToken, TrafficAccessToken: sb.trafficToken,
		Domain: s.options.Domain,
	}
}

func (s *Service) listed(sb *sandbox) listed {
	return listed{
		TemplateID: sb.template.id, SandboxID: sb.id, ClientID: clientID, Alias: sb.template.alias,
		StartedAt: sb.startedAt, EndAt: s.endOf(sb),
		CPUCount: s.options.Resources.CPUs, MemoryMB: s.options.Resources.MemoryMB, DiskSizeMB: s.options.Resources.DiskMB,
		State: "running", EnvdVersion: s.options.EnvdVersion, Metadata: sb.metadata, VolumeMounts: []struct{}{},
	}
}

func (s *Service) get(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.find(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, detail{
		listed: s.listed(sb), EnvdAccessToken: sb.accessToken, AllowInternetAccess: sb.internet,
		Domain: s.options.Domain, Network: s.networkOf(sb), Lifecycle: lifecycle{OnTimeout: "kill"},
	})
	return nil
}

func (s *Service) kill(w http.ResponseWriter, r *http.Request) error {
	id, err := sandboxID(r)
	if err != nil {
		return err
	}
	sb := s.take(id)
	if sb == nil {
		return s.notFound(id)
	}
	s.end(sb, "it was killed by request")
	noContent(w)
	return nil
}

// find gives the running sandbox that the path names.
func (s *Service) find(r *http.Request) (*sandbox, error) {
	id, err := sandboxID(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	sb := s.sandboxes[id]
	s.mu.Unlock()
	if sb == nil {
		return nil, s.notFound(id)
	}
	return sb, nil
}

// sandboxID is the id in the path. Old clients append the client id to it.
func sandboxID(r *http.Request) (string, error) {
	id, client, _ := strings.Cut(r.PathValue("id"), "-")
	if id == "" || strings.Contains(client, "-") || strings.ContainsFunc(id, notLowerAlphanumeric) {
		return "", errorf(http.StatusBadRequest, "Invalid sandbox ID")
	}
	return id, nil
}

func notLowerAlphanumeric(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }

// notFound is the answer for a sandbox that is not, or not any more, there.
// How a sandbox ended is told to whoever knew its id.
func (s *Service) notFound(id string) error {
	s.mu.Lock()
	how := s.ended.of(id)
	s.mu.Unlock()
	return errorf(http.StatusNotFound, "Sandbox \"%s\" doesn't exist or you don't have access to it%s", bounded(id), how)
}

// newID gives 100 random bits: nobody guesses the id of another's sandbox.
func newID() string { return "i" + strings.ToLower(rand.Text())[:20] }

func newToken() string {
	var token [32]byte
	_, _ = rand.Read(token[:]) // never fails
	return hex.EncodeToString(token[:])
}
