package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A template is built in four calls: Create asks for a build, FileUpload and Upload send the
// files to copy, StartBuild sends the steps, and BuildStatus reports the progress. Package
// sandbox/template makes them all.

// TemplateCreateParams has the tags of a build and the resources of its sandboxes. The zero value
// means the service's defaults.
type TemplateCreateParams struct {
	// Tags are the tags of the build, in addition to a tag in the name; if no tag is set at all, the
	// service uses the tag "default".
	Tags []string
	// CPUs and MemoryBytes are the resources of each sandbox; 0 means the service's default.
	// MemoryBytes is rounded up to whole MiB.
	CPUs        int
	MemoryBytes int64
	// MinFreeDiskBytes is the least free disk space of a sandbox after the build; nil means the
	// service's default.
	MinFreeDiskBytes *int64
	// Engine is the engine of a local cloud that runs the build and the template's sandboxes:
	// "room", "docker" or "gvisor". Empty means the engine of the template that the build
	// begins with; without such a template it means the cloud's default engine. With another
	// service, setting Engine returns [errors.ErrUnsupported].
	Engine Engine
}

type templateRequest struct {
	Name          string   `json:"name"`
	Tags          []string `json:"tags,omitempty"`
	CPUs          int      `json:"cpuCount,omitempty"`
	MemoryMB      int64    `json:"memoryMB,omitempty"`
	MinFreeDiskMB *int64   `json:"minFreeDiskMb,omitempty"`
	Engine        Engine   `json:"engine,omitempty"`
}

// NewBuild is a build that Create has registered with the service. StartBuild starts it.
type NewBuild struct {
	TemplateID string `json:"templateID"`
	BuildID    string `json:"buildID"`
	// Public reports whether other teams may use the template.
	Public bool `json:"public"`
	// Names are the template's names with the team in front. Aliases are the same names without
	// the team.
	Names   []string `json:"names"`
	Aliases []string `json:"aliases"`
	// Tags will name the build once it is ready.
	Tags []string `json:"tags"`
}

// Create asks for a build of the template "name" or "name:tag". It creates a missing template.
// Earlier builds of the template remain, and new sandboxes use them until the new build is ready.
// The error is [ErrInvalidArgument] when the name, a tag or a size is refused, [ErrForbidden] when
// the name belongs to another team, [ErrConflict] when the name is the id of a template, and
// [ErrRateLimited] when too many builds run.
//
// Create is retried only when provably nothing was sent, or when the service answers 429.
func (s *TemplateService) Create(ctx context.Context, name string, p *TemplateCreateParams) (*NewBuild, error) {
	if p == nil {
		p = &TemplateCreateParams{}
	}
	if p.Engine != "" {
		if err := s.client.checkFeature(ctx, "engines", "TemplateCreateParams.Engine: only the local cloud has engines to choose from"); err != nil {
			return nil, err
		}
	}
	request := templateRequest{Name: name, Tags: p.Tags, CPUs: p.CPUs, MemoryMB: mebibytes(p.MemoryBytes), Engine: p.Engine}
	if p.MinFreeDiskBytes != nil {
		request.MinFreeDiskMB = new(mebibytes(*p.MinFreeDiskBytes))
	}
	build := &NewBuild{}
	if _, err := s.client.do(ctx, call{method: http.MethodPost, path: "/v3/templates", body: request, once: true}, build); err != nil {
		return nil, err
	}
	if _, err := buildPath(build.TemplateID, build.BuildID, ""); err != nil {
		return nil, errors.New("api: the service's answer has no usable templateID and buildID")
	}
	return build, nil
}

// BuildStep is one step of a build. The service runs it in a sandbox, or uses the result that it
// cached when it ran the same steps before.
type BuildStep struct {
	// Type is COPY, RUN, ENV, WORKDIR or USER.
	Type string `json:"type"`
	// Args are the arguments of the step. They depend on the type:
	//   - COPY: a source, a destination, an owner and a mode; the last two may be empty
	//   - RUN: a command and, optionally, a user
	//   - ENV: names, each followed by its value
	//   - WORKDIR: a path
	//   - USER: a name
	Args []string `json:"args"`
	// FilesHash names the archive with the files of COPY; see FileUpload.
	FilesHash string `json:"filesHash,omitempty"`
	// FromStage makes COPY take files from the stage with this name in StartBuildParams.Stages,
	// instead of from an archive. If COPY names no owner, the files keep the owner that they have in
	// the stage.
	FromStage string `json:"fromStage,omitempty"`
	// Force runs this step and all later ones, even if their results are cached.
	Force bool `json:"force"`
}

// ImageRegistry is the login to the registry of an image. Set Username and Password, or the
// three fields for AWS, or GCPServiceAccount for Google's cloud.
type ImageRegistry struct {
	Username string
	Password Key

	AWSAccessKeyID     string
	AWSSecretAccessKey Key
	AWSRegion          string

	// GCPServiceAccount is the JSON text of the service account's key.
	GCPServiceAccount Key
}

// Format writes the fields, and "[redacted]" for a key that is set. Without this method, fmt would
// print the keys if a struct with a pointer to a login is formatted with an unsuitable verb such as %s.
func (i ImageRegistry) Format(f fmt.State, verb rune) {
	type fields ImageRegistry
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), fields(i))
}

var errLogin = fmt.Errorf("api: the login to a registry wants Username and Password, or AWSAccessKeyID, AWSSecretAccessKey and AWSRegion, or GCPServiceAccount: %w", ErrInvalidArgument)

// wire returns the login as the map that the API expects.
func (r *ImageRegistry) wire() (map[string]string, error) {
	if r == nil {
		return nil, nil
	}
	basic := map[string]string{"username": r.Username, "password": string(r.Password)}
	aws := map[string]string{"awsAccessKeyId": r.AWSAccessKeyID, "awsSecretAccessKey": string(r.AWSSecretAccessKey), "awsRegion": r.AWSRegion}
	gcp := map[string]string{"serviceAccountJson": string(r.GCPServiceAccount)}
	var found map[string]string
	for name, fields := range map[string]map[string]string{"registry": basic, "aws": aws, "gcp": gcp} {
		given := 0
		for _, value := range fields {
			if value != "" {
				given++
			}
		}
		switch {
		case given == 0:
			continue
		case given < len(fields) || found != nil:
			return nil, errLogin
		}
		found, fields["type"] = fields, name
	}
	if found == nil {
		return nil, errLogin
	}
	return found, nil
}

// BuildStage is a stage that build steps copy files from.
type BuildStage struct {
	// Name identifies the stage in BuildStep.FromStage.
	Name string `json:"name"`
	// FromImage is the image to begin with.
	FromImage string `json:"fromImage"`
	// Steps run one after another. They may copy files from earlier stages.
	Steps []BuildStep `json:"steps"`
}

// StartBuildParams describes a build. FromImage or FromTemplate must be set.
type StartBuildParams struct {
	// FromImage is the image to begin with.
	FromImage string
	// FromTemplate is the template to begin with, by id or name.
	FromTemplate string
	// Registry is the login for FromImage; nil means none.
	Registry *ImageRegistry
	// Stages are built before the steps, in this order. Only the local cloud builds stages: with
	// another service the error is [errors.ErrUnsupported]. See [TemplateService.CheckStages].
	Stages []BuildStage
	// Steps run one after another.
	Steps []BuildStep
	// Force runs all steps even if their results are cached.
	Force bool
	// StartCommand starts with every sandbox of the template; empty means none.
	StartCommand string
	// ReadyCommand is a command whose success means that a sandbox is ready; empty means the
	// service's default.
	ReadyCommand string
}

type startBuildRequest struct {
	FromImage         string            `json:"fromImage,omitempty"`
	FromTemplate      string            `json:"fromTemplate,omitempty"`
	FromImageRegistry map[string]string `json:"fromImageRegistry,omitempty"`
	Force             bool              `json:"force"`
	Stages            []BuildStage      `json:"stages,omitempty"`
	Steps             []BuildStep       `json:"steps"`
	StartCmd          string            `json:"startCmd,omitempty"`
	ReadyCmd          string            `json:"readyCmd,omitempty"`
}

// StartBuild starts a build that Create has registered. It cancels running builds of the same
// template and tag. The service finds most mistakes in the steps, image or template only after
// StartBuild has returned, and BuildStatus reports them. The error is [ErrInvalidArgument] when the
// build was started before, and [ErrNotFound] when there is no such build.
//
// StartBuild is retried only when provably nothing was sent, or when the service answers 429.
func (s *TemplateService) StartBuild(ctx context.Context, templateID, buildID string, p *StartBuildParams) error {
	path, err := buildPath(templateID, buildID, "")
	if err != nil {
		return err
	}
	if p == nil || (p.FromImage == "") == (p.FromTemplate == "") {
		return fmt.Errorf("api: a build begins with FromImage or with FromTemplate: %w", ErrInvalidArgument)
	}
	request := startBuildRequest{
		FromImage: p.FromImage, FromTemplate: p.FromTemplate, Force: p.Force, Stages: p.Stages, Steps: append([]BuildStep{}, p.Steps...),
		StartCmd: p.StartCommand, ReadyCmd: p.ReadyCommand,
	}
	if request.FromImageRegistry, err = p.Registry.wire(); err != nil {
		return err
	}
	if len(p.Stages) > 0 {
		if err := s.CheckStages(ctx); err != nil {
			return err
		}
	}
	_, err = s.client.do(ctx, call{method: http.MethodPost, path: "/v2" + path, body: request, once: true}, nil)
	return err
}

// defaultArchitecture is the architecture of E2B's machines.
const defaultArchitecture = "amd64"

// Architecture returns the architecture of the images that templates begin with, as a value of
// GOARCH. A local cloud returns the architecture of its machine. If the cloud's default engine is
// Docker, that machine is the one with the Docker daemon. If the service does not report an
// architecture, the result is "amd64".
func (s *TemplateService) Architecture(ctx context.Context) (string, error) {
	features, err := s.client.features(ctx)
	if err != nil {
		return "", err
	}
	has, _ := features["architecture"].(string)
	return cmp.Or(has, defaultArchitecture), nil
}

// CheckStages returns [errors.ErrUnsupported] if the service would ignore
// StartBuildParams.Stages. It returns nil if the service builds stages.
func (s *TemplateService) CheckStages(ctx context.Context) error {
	return s.client.checkFeature(ctx, "stages", "stages of a build, of which COPY --from takes files: only the local cloud builds them")
}

// BuildLogLevel is the severity of a line of a build's log. A service may use values other than
// the constants here.
type BuildLogLevel string

// These are the levels of a build's log.
const (
	BuildLogDebug BuildLogLevel = "debug"
	BuildLogInfo  BuildLogLevel = "info"
	BuildLogWarn  BuildLogLevel = "warn"
	BuildLogError BuildLogLevel = "error"
)

// BuildLogEntry is a line of a build's log. The text comes from programs that the build runs, and
// may contain control characters.
type BuildLogEntry struct {
	Time    time.Time     `json:"timestamp"`
	Level   BuildLogLevel `json:"level"`
	Message string        `json:"message"`
	// Step identifies the step. It has the form of [BuildFailure].Step, and is often empty.
	Step string `json:"step"`
}

// BuildFailure is the reason for the failure of a build.
type BuildFailure struct {
	Message string `json:"message"`
	// Step is "base", "finalize", or the number of a build step, where "1" is the first step; often
	// empty.
	Step string `json:"step"`
	// Logs are log lines about the failure; often none.
	Logs []BuildLogEntry `json:"logEntries"`
}

// BuildState reports the progress of a build, with a part of its log.
type BuildState struct {
	TemplateID string      `json:"templateID"`
	BuildID    string      `json:"buildID"`
	Status     BuildStatus `json:"status"`
	// Logs begin at the line that BuildStatusParams.LogsOffset selects.
	Logs []BuildLogEntry `json:"logEntries"`
	// Failure is set when Status is [BuildError].
	Failure *BuildFailure `json:"reason"`
}

// BuildStatusParams selects a part of the log. The zero value selects its beginning.
type BuildStatusParams struct {
	// LogsOffset is the number of lines to skip, normally the number of lines already received.
	LogsOffset int
	// MaxLines limits the returned lines, 1 to 100. Zero means the service's default, 100.
	MaxLines int
	// Level is the lowest level of the returned lines; empty means all levels.
	Level BuildLogLevel
}

// BuildStatus returns the progress of a build. One answer may contain only a part of the log,
// even after the end of the build. It returns [ErrNotFound] if there is no such build.
func (s *TemplateService) BuildStatus(ctx context.Context, templateID, buildID string, p *BuildStatusParams) (*BuildState, error) {
	path, err := buildPath(templateID, buildID, "/status")
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	if p != nil {
		setPage(query, p.MaxLines, "")
		if p.LogsOffset != 0 {
			query.Set("logsOffset", strconv.Itoa(p.LogsOffset))
		}
		setLevel(query, p.Level)
	}
	var answer struct {
		BuildState
		Logs []*BuildLogEntry `json:"logEntries"`
	}
	if _, err := s.client.do(ctx, call{method: http.MethodGet, path: path, query: query}, &answer); err != nil {
		return nil, missingOf(err)
	}
	state := answer.BuildState
	if state.Logs, err = values("a line of a log", answer.Logs); err != nil {
		return nil, err
	}
	return &state, nil
}

// BuildLogsParams selects a part of a log. The zero value selects its beginning.
type BuildLogsParams struct {
	// Cursor is the time of the first line to return. Zero means the first line or, with
	// Backward, the last one.
	Cursor time.Time
	// Backward returns the newest lines first.
	Backward bool
	// MaxLines limits the returned lines, 1 to 100. Zero means the service's default, 100.
	MaxLines int
	// Level is the lowest level of the returned lines; empty means all levels.
	Level BuildLogLevel
}

// BuildLogs returns a part of a build's log, even long after the build has ended. It selects
// lines by their time. To follow a running build, use BuildStatus, which selects lines by their
// number.
func (s *TemplateService) BuildLogs(ctx context.Context, templateID, buildID string, p *BuildLogsParams) ([]BuildLogEntry, error) {
	path, err := buildPath(templateID, buildID, "/logs")
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	if p != nil {
		setPage(query, p.MaxLines, "")
		if !p.Cursor.IsZero() {
			query.Set("cursor", strconv.FormatInt(p.Cursor.UnixMilli(), 10))
		}
		if p.Backward {
			query.Set("direction", "backward")
		}
		setLevel(query, p.Level)
	}
	var answer struct {
		Logs []*BuildLogEntry `json:"logs"`
	}
	if _, err := s.client.do(ctx, call{method: http.MethodGet, path: path, query: query}, &answer); err != nil {
		return nil, err
	}
	return values("a line of a log", answer.Logs)
}

func setLevel(query url.Values, level BuildLogLevel) {
	if level != "" {
		query.Set("level", string(level))
	}
}

// buildPath returns the path of a build's route in the first generation of the API. Such a path has
// no version prefix.
func buildPath(templateID, buildID, route string) (string, error) {
	path, err := objectPath("/templates/", "template", templateID, "/builds/")
	if err != nil {
		return "", err
	}
	return objectPath(path, "build", buildID, route)
}

// isHash reports whether s is a SHA-256 hash in lower-case hexadecimal digits.
func isHash(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
