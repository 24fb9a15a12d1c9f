package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// dialect is what differs between the two generations of create and connect.
type dialect struct {
	timeout      int32 // seconds, when the request has none
	secure       bool  // whatever the request says
	bodyOptional bool
}

var (
	version1 = dialect{timeout: 15}
	version2 = dialect{timeout: 300, secure: true, bodyOptional: true}
)

type createRequest struct {
	TemplateID          string             `json:"templateID"`
	Timeout             *int32             `json:"timeout"`
	Secure              bool               `json:"secure"`
	AllowInternetAccess *bool              `json:"allow_internet_access"`
	AutoPause           bool               `json:"autoPause"`
	AutoPauseMemory     *bool              `json:"autoPauseMemory"`
	AutoResume          *autoResumeRequest `json:"autoResume"`
	EnvVars             map[string]string  `json:"envVars"`
	Metadata            map[string]string  `json:"metadata"`
	MCP                 json.RawMessage    `json:"mcp"`
	IAM                 json.RawMessage    `json:"iam"`
	Network             *networkRequest    `json:"network"`
	VolumeMounts        json.RawMessage    `json:"volumeMounts"`

	egress *network.Rules // as validate read them
}

type autoResumeRequest struct {
	Enabled bool `json:"enabled"`
}

func (s *Service) create(d dialect) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var q createRequest
		if err := decode(w, r, &q, false); err != nil {
			return err
		}
		q.Secure = q.Secure || d.secure
		lifetime, err := s.lifetime(q.Timeout, d)
		if err != nil {
			return err
		}
		if lifetime == 0 {
			return errorf(http.StatusBadRequest, "Timeout must be greater than 0")
		}
		if err := q.validate(); err != nil {
			return err
		}
		t, err := findTemplate(q.TemplateID)
		if err != nil {
			return err
		}
		sb, err := s.once(r.Context(), r.Header.Get(headerIdempotency), &q, func() (*sandbox, error) {
			return s.launch(r.Context(), &q, t, lifetime)
		})
		if err != nil {
			return err
		}
		writeJSON(w, http.StatusCreated, s.answer(sb))
		return nil
	}
}

// lifetime checks a timeout of a create or connect request.
func (s *Service) lifetime(seconds *int32, d dialect) (time.Duration, error) {
	if seconds == nil {
		seconds = &d.timeout
	}
	if *seconds < 0 {
		return 0, invalid("timeout must not be negative")
	}
	lifetime := time.Duration(*seconds) * time.Second
	if lifetime > s.options.MaxLifetime {
		return 0, errorf(http.StatusBadRequest, "Timeout cannot be greater than %g hours", s.options.MaxLifetime.Hours())
	}
	return lifetime, nil
}

func (q *createRequest) validate() error {
	switch {
	case q.TemplateID == "":
		return invalid("templateID is missing")
	case q.AutoPause:
		return unsupported("autoPause")
	case q.AutoPauseMemory != nil && !*q.AutoPauseMemory:
		return unsupported("autoPauseMemory")
	case q.AutoResume != nil && q.AutoResume.Enabled:
		return unsupported("autoResume.enabled")
	case given(q.MCP):
		return unsupported("mcp")
	case given(q.IAM):
		return unsupported("iam")
	case given(q.VolumeMounts):
		return unsupported("volumeMounts")
	}
	for name, value := range q.EnvVars {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return invalid("envVars has %q, which cannot be an environment variable", bounded(name))
		}
	}
	var err error
	if q.egress, err = q.Network.egress(q.AllowInternetAccess); err != nil {
		return err
	}
	return q.Network.validate(q.Secure)
}

// given tells whether an optional part of a request asks for anything.
func given(raw json.RawMessage) bool {
	switch strings.Join(strings.Fields(string(raw)), "") {
	case "", "null", "{}", "[]":
		return false
	}
	return true
}

// launch starts and records a sandbox. Its time counts from when it runs.
func (s *Service) launch(ctx context.Context, q *createRequest, t template, lifetime time.Duration) (*sandbox, error) {
	sb := &sandbox{id: newID(), template: t, metadata: q.Metadata, internet: q.AllowInternetAccess, network: q.Network}
	spec := Spec{ID: sb.id, TemplateID: t.id, Envs: q.EnvVars, Egress: q.egress}
	if q.Secure {
		sb.accessToken = newToken()
		spec.AccessToken = sb.accessToken
	}
	if q.Network.private() {
		sb.trafficToken = newToken()
		spec.TrafficToken = sb.trafficToken
	}
	if q.Network != nil {
		spec.MaskHost, spec.HTTPSPorts = q.Network.MaskRequestHost, q.Network.HTTPSPorts
		q.Network.tidy()
	}
	if err := s.reserve(); err != nil {
		return nil, err
	}
	instance, err := s.options.Launch(ctx, spec)
	if err != nil {
		s.release()
		if refused, ok := errors.AsType[*RefusedError](err); ok {
			return nil, invalid("%s", bounded(refused.Reason))
		}
		s.options.Logger.ErrorContext(ctx, "sandbox not created", "error", err)
		return nil, &apiError{
			Code: http.StatusInternalServerError, ErrorCode: "sandbox_create_failed",
			Message: "Failed to create sandbox: " + bounded(err.Error()),
		}
	}
	sb.instance = instance
	// Who asked may be gone: nobody would know this sandbox then.
	if err := ctx.Err(); err != nil {
		s.end(sb, "nobody waited for it")
		return nil, err
	}
	if !s.add(sb, lifetime) {
		s.end(sb, "the cloud was closed")
		return nil, errClosing
	}
	s.options.Logger.InfoContext(ctx, "sandbox created", "sandbox", sb.id, "template", t.alias)
	return sb, nil
}

// RefusedError is returned by a launcher for what a request asks for and no
// sandbox can have; the client reads Reason.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "control: sandbox refused: " + e.Reason }
