package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/builds"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/shortage"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// Bounds of a build request. The service has the same bounds.
const (
	maxCPUs     = 32
	minMemoryMB = 128
)

// requestBuild creates a build of a template. startBuild starts the build later.
func (s *Service) requestBuild(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Name          string   `json:"name"`
		Tags          []string `json:"tags"`
		CPUCount      *int32   `json:"cpuCount"`
		MemoryMB      *int32   `json:"memoryMB"`
		MinFreeDiskMb *int32   `json:"minFreeDiskMb"`
		Alias         string   `json:"alias"` // name of the template, from older clients
		TeamID        string   `json:"teamID"`
		Engine        string   `json:"engine"` // not a field of the service
	}
	if err := decode(w, r, &q, false); err != nil {
		return err
	}
	if q.Name == "" {
		q.Name = q.Alias
	}
	switch {
	case q.Name == "":
		return invalid("name is missing")
	case q.TeamID != "" && q.TeamID != teamID:
		return errorf(http.StatusForbidden, "no access to that team: this local cloud has only %s", teamID)
	case q.CPUCount != nil && (*q.CPUCount < 1 || *q.CPUCount > maxCPUs):
		return invalid("cpuCount must be between 1 and %d", maxCPUs)
	case q.MemoryMB != nil && *q.MemoryMB < minMemoryMB:
		return invalid("memoryMB must be at least %d", minMemoryMB)
	case q.MinFreeDiskMb != nil && *q.MinFreeDiskMb < 0:
		return invalid("minFreeDiskMb must not be negative")
	case q.Engine != "" && !slices.Contains(engine.Names, engine.Name(q.Engine)):
		return invalid("engine must be one of %v, not %q", engine.Names, bounded(q.Engine))
	}
	asked := templates.Build{Content: templates.Content{Engine: engine.Name(q.Engine)}}
	if q.CPUCount != nil {
		asked.CPUs = int(*q.CPUCount)
	}
	if q.MemoryMB != nil {
		asked.MemoryMB = int(*q.MemoryMB)
	}
	t, build, err := s.builds.Request(templates.ParseReference(q.Name), q.Tags, asked)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusAccepted, struct {
		TemplateID string   `json:"templateID"`
		BuildID    string   `json:"buildID"`
		Public     bool     `json:"public"`
		Names      []string `json:"names"`
		Tags       []string `json:"tags"`
		Aliases    []string `json:"aliases"`
	}{t.ID, build.ID, t.Public, namesOf(t.FullName()), build.Tags, namesOf(t.Name)})
	return nil
}

// stepRequest is a step of a build.
type stepRequest struct {
	Type      string   `json:"type"`
	Args      []string `json:"args"`
	FilesHash string   `json:"filesHash"`
	FromStage string   `json:"fromStage"` // sent by clients of this module only
	Force     bool     `json:"force"`
	uploadRequest
}

// uploadRequest describes how a client packs and uploads the files of a step. The server does
// neither, and ignores the description.
type uploadRequest struct {
	ForceUpload     json.RawMessage `json:"forceUpload"`
	ResolveSymlinks json.RawMessage `json:"resolveSymlinks"`
	Gzip            json.RawMessage `json:"gzip"`
}

// stageRequest is a stage that steps copy from. Only clients of this module send stages.
type stageRequest struct {
	Name      string        `json:"name"`
	FromImage string        `json:"fromImage"`
	Steps     []stepRequest `json:"steps"`
}

type startRequest struct {
	FromImage         string           `json:"fromImage"`
	FromTemplate      string           `json:"fromTemplate"`
	FromImageRegistry *registryRequest `json:"fromImageRegistry"`
	Force             bool             `json:"force"`
	Stages            []stageRequest   `json:"stages"`
	Steps             []stepRequest    `json:"steps"`
	StartCmd          string           `json:"startCmd"`
	ReadyCmd          string           `json:"readyCmd"`
}

// registryRequest is the login for an image's registry.
type registryRequest struct {
	Type     string `json:"type"`
	Username string `json:"username"`
	Password string `json:"password"`
}

func (q *registryRequest) login() (*image.Auth, error) {
	if q == nil {
		return nil, nil
	}
	instead := map[string]string{
		"aws": "user AWS and the password that aws ecr get-login-password prints",
		"gcp": "user _json_key and the JSON text as password",
	}
	switch {
	case instead[q.Type] != "":
		return nil, invalid("not supported by this local cloud: fromImageRegistry of type %s: use type registry with %s", q.Type, instead[q.Type])
	case q.Type != "registry":
		return nil, invalid("fromImageRegistry.type must be registry")
	case q.Username == "" || q.Password == "":
		return nil, invalid("fromImageRegistry must have a username and a password")
	}
	return &image.Auth{Username: q.Username, Password: q.Password}, nil
}

func (q *startRequest) spec() (spec builds.Spec, err error) {
	spec = builds.Spec{FromImage: q.FromImage, FromTemplate: q.FromTemplate, Force: q.Force, Start: q.StartCmd, Ready: q.ReadyCmd}
	if spec.Auth, err = q.FromImageRegistry.login(); err != nil {
		return spec, err
	}
	if (q.FromImage == "") == (q.FromTemplate == "") {
		return spec, invalid("exactly one of fromImage and fromTemplate must be given, and not be empty")
	}
	if spec.Steps, err = steps("steps", q.Steps); err != nil {
		return spec, err
	}
	for i, s := range q.Stages {
		stage := builds.Stage{Name: s.Name, FromImage: s.FromImage}
		if stage.Steps, err = steps(fmt.Sprintf("stages[%d].steps", i), s.Steps); err != nil {
			return spec, err
		}
		spec.Stages = append(spec.Stages, stage)
	}
	if n := len(spec.All()) + len(spec.Stages); n > builds.MaxSteps {
		return spec, invalid("steps has %d elements, and may have %d", n, builds.MaxSteps)
	}
	if err := spec.Check(); err != nil {
		return spec, invalid("%v", err)
	}
	return spec, nil
}

// steps converts the steps in a field of a request.
func steps(field string, asked []stepRequest) ([]builds.Step, error) {
	var all []builds.Step
	for i, step := range asked {
		if step.Type == "" {
			return nil, invalid("%s[%d].type is missing", field, i)
		}
		if step.FilesHash != "" && !builds.ValidHash(step.FilesHash) {
			return nil, invalid("%s[%d].filesHash must be 64 hexadecimal digits", field, i)
		}
		all = append(all, builds.Step{Type: step.Type, Args: step.Args, FilesHash: step.FilesHash, FromStage: step.FromStage, Force: step.Force})
	}
	return all, nil
}

// startBuild starts a build that was requested.
func (s *Service) startBuild(w http.ResponseWriter, r *http.Request) error {
	t, err := s.templates.Get(templates.ParseReference(r.PathValue("id")))
	if err != nil {
		return err
	}
	var q startRequest
	if err := decode(w, r, &q, false); err != nil {
		return err
	}
	spec, err := q.spec()
	if err != nil {
		return err
	}
	id := r.PathValue("build")
	if q.FromImage != "" {
		build, _ := t.Build(id)
		if err := s.builds.CheckImage(r.Context(), build, q.FromImage); err != nil {
			return s.builds.Refuse(t.ID, id, err)
		}
	}
	if err := s.builds.Start(t.ID, id, spec); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// logEntry is a line of a build's log, as clients receive it.
type logEntry struct {
	Timestamp time.Time `json:"timestamp"`
	Message   string    `json:"message"`
	Level     string    `json:"level"`
	Step      string    `json:"step,omitempty"`
}

func logEntries(lines []templates.Entry) []logEntry {
	answer := make([]logEntry, len(lines))
	for i, line := range lines {
		answer[i] = logEntry{line.At, line.Message, levelName(line.Level), line.Step}
	}
	return answer
}

// failureAnswer describes the failure of a build.
type failureAnswer struct {
	Message    string     `json:"message"`
	Step       string     `json:"step,omitempty"`
	LogEntries []logEntry `json:"logEntries,omitempty"`
}

// buildStatus answers with the state of a build and the next lines of its log.
func (s *Service) buildStatus(w http.ResponseWriter, r *http.Request) error {
	status, query, err := s.findBuild(r)
	if err != nil {
		return err
	}
	selection, err := selectLines(query)
	if err != nil {
		return err
	}
	if selection.Offset, err = wholeNumber(query, "logsOffset", 0); err != nil {
		return err
	}
	answer := struct {
		TemplateID string         `json:"templateID"`
		BuildID    string         `json:"buildID"`
		Status     string         `json:"status"`
		Logs       []string       `json:"logs"` // always empty: older clients need it
		LogEntries []logEntry     `json:"logEntries"`
		Reason     *failureAnswer `json:"reason,omitempty"`
	}{r.PathValue("id"), r.PathValue("build"), string(status.Status), []string{}, logEntries(status.Log(selection)), nil}
	if f := status.Failure; f != nil {
		answer.Reason = &failureAnswer{f.Message, f.Step, logEntries(f.Log)}
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// buildLogs answers with a page of a build's log. The page begins at a given time.
func (s *Service) buildLogs(w http.ResponseWriter, r *http.Request) error {
	status, query, err := s.findBuild(r)
	if err != nil {
		return err
	}
	selection, err := selectLines(query)
	if err != nil {
		return err
	}
	switch direction := query.Get("direction"); direction {
	case "", "forward":
	case "backward":
		selection.Backward = true
	default:
		return invalid("direction must be forward or backward")
	}
	if source := query.Get("source"); source != "" && source != "temporary" && source != "persistent" {
		return invalid("source must be temporary or persistent")
	}
	cursor, err := millisecond(query, "cursor")
	if err != nil {
		return err
	}
	if selection.Backward {
		selection.Until = cursor
	} else {
		selection.From = cursor
	}
	writeJSON(w, http.StatusOK, struct {
		Logs []logEntry `json:"logs"`
	}{logEntries(status.Log(selection))})
	return nil
}

// findBuild returns the build that a request names. Like the service, it answers 400 for an
// unknown build.
func (s *Service) findBuild(r *http.Request) (builds.Status, *query, error) {
	query, err := parseQuery(r)
	if err != nil {
		return builds.Status{}, nil, err
	}
	status, ok := s.builds.Status(r.PathValue("id"), r.PathValue("build"))
	if !ok {
		if _, err := s.templates.Get(templates.ParseReference(r.PathValue("id"))); err != nil {
			return builds.Status{}, nil, err
		}
		return builds.Status{}, nil, errorf(http.StatusBadRequest, "template '%s' has no build '%s'", bounded(r.PathValue("id")), bounded(r.PathValue("build")))
	}
	return status, query, nil
}

// selectLines converts the parameters of a query to a selection of a log's lines.
func selectLines(query *query) (selection builds.Select, err error) {
	if selection.Level, err = leastLevel(query); err != nil {
		return selection, err
	}
	selection.Limit, err = wholeNumber(query, "limit", maxPage)
	if err == nil && selection.Limit > maxPage {
		err = invalid("limit must be between 0 and %d", maxPage)
	}
	return selection, err
}

// wholeNumber reads a parameter of a query. The parameter is a number that must not be negative. If
// the parameter is absent, wholeNumber returns the value in otherwise.
func wholeNumber(query *query, name string, otherwise int) (int, error) {
	text := query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, invalid("%s must be a number that is not negative", name)
	}
	return int(n), nil
}

// buildError returns the answer for an error of package builds, and nil for other errors.
func buildError(err error) *apiError {
	if e, ok := errors.AsType[*builds.ImageError](err); ok {
		return &apiError{Code: http.StatusBadRequest, Message: e.Error()}
	}
	if e, ok := errors.AsType[*builds.NoImagesError](err); ok {
		return &apiError{Code: http.StatusBadRequest, ErrorCode: protocol.CodeUnsupported, Message: e.Error()}
	}
	if e, ok := errors.AsType[*builds.SpaceError](err); ok {
		return &apiError{Code: http.StatusInsufficientStorage, Message: e.Error()}
	}
	if e, ok := errors.AsType[*builds.FetchError](err); ok && !shortage.IsDisk(err) {
		return &apiError{Code: fetchStatus(e), Message: reason(e)}
	}
	switch {
	case errors.Is(err, builds.ErrFetches):
		return &apiError{Code: http.StatusTooManyRequests, Message: fmt.Sprintf("%d images are being fetched, which is the limit: try again when one of them is here", builds.MaxActive)}
	case errors.Is(err, builds.ErrBusy):
		return &apiError{Code: http.StatusTooManyRequests, Message: fmt.Sprintf("you have reached the maximum number of concurrent template builds, %d", builds.MaxActive)}
	case errors.Is(err, builds.ErrClosed):
		return &apiError{Code: http.StatusServiceUnavailable, Message: "the local cloud is closing"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &apiError{Code: http.StatusRequestTimeout, Message: "the archive did not come"}
	case errors.Is(err, builds.ErrCutOff):
		return &apiError{Code: http.StatusBadRequest, Message: reason(err)}
	}
	return nil
}

// fetchStatus returns the status of the answer to a create whose image could not be fetched, by the
// registry's answer. The client's own key is right, so the answer is never 401 or 403.
func fetchStatus(e *builds.FetchError) int {
	_, unreached := errors.AsType[net.Error](e.Err)
	switch {
	case e.Status == http.StatusNotFound:
		return http.StatusNotFound
	case e.Status == http.StatusTooManyRequests:
		return http.StatusServiceUnavailable
	case unreached, e.Status >= 500:
		return http.StatusBadGateway
	}
	return http.StatusBadRequest
}
