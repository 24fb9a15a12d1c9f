package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/e2bctl/e2bctl/internal/cloud"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/cloud/secrets"
)

// running implements [service] with a cloud.
type running struct{ *cloud.Cloud }

func start(ctx context.Context, s settings) (service, error) {
	var all []mounts.Mount
	for _, m := range s.mounts {
		all = append(all, mounts.Mount(m))
	}
	var allowed []mounts.Allowed
	for _, dir := range s.allowed {
		allowed = append(allowed, mounts.Allowed{Dir: dir})
	}
	for _, dir := range s.writable {
		allowed = append(allowed, mounts.Allowed{Dir: dir, Writable: true})
	}
	c, err := cloud.Start(ctx, cloud.Options{
		Address:      s.address,
		Domain:       s.domain,
		Authority:    s.authority,
		State:        s.state,
		SecretsKey:   os.Getenv(secrets.EnvKey),
		Key:          string(s.key),
		Engine:       engine.Name(s.engine),
		Docker:       s.docker.options(),
		PyodideDist:  s.wasm.PyodideDist,
		Runsc:        s.runsc,
		Kubernetes:   s.kubernetes,
		Isolation:    engine.Isolation(s.isolation),
		Binary:       s.binary,
		MaxSandboxes: s.maxSandboxes,
		Warm:         s.warm,
		Limits:       s.limits,
		Most:         s.most,
		VolumeSize:   s.volumeSize,
		Mounts:       all,
		AllowMounts:  allowed,
		Policy:       network.Policy{DenyPrivate: s.denyPrivate},
		ProxyNames:   s.proxyNames,
		HostServices: s.services,
		Ask:          s.ask,
		Images:       cloud.ImageSources{Mirrors: s.images.mirrors, Insecure: s.images.insecure, Dirs: s.images.dirs, MaxBytes: s.images.maxBytes},
		Logger:       s.logger,
	})
	switch {
	case errors.Is(err, engine.ErrLinuxOnly):
		return nil, fmt.Errorf("local: engine %s: %w", s.engine, ErrUnsupported)
	case errors.Is(err, engine.ErrNoIsolation), s.engine == "" && errors.Is(err, docker.ErrNoDaemon):
		return nil, fmt.Errorf("local: %w: %w", ErrNoIsolation, err)
	case err != nil:
		return nil, fmt.Errorf("local: %w", err)
	}
	return running{c}, nil
}

func (p DockerParams) options() docker.Options {
	return docker.Options{
		Host: p.Host, Image: p.Image, MemoryBytes: p.MemoryBytes, CPUs: p.CPUs, MaxProcesses: p.MaxProcesses,
		CapDrop: p.CapDrop, SecurityOpt: p.SecurityOpt, User: p.User, NetworkDisabled: p.NetworkDisabled,
	}
}

func (r running) trust() []string { return r.Trust().Env() }

func (r running) engineReport(e Engine) (Report, error) {
	found, err := r.EngineReport(engine.Name(e))
	switch {
	case errors.Is(err, engine.ErrLinuxOnly):
		return Report{}, fmt.Errorf("local: engine %s: %w: %w", e, ErrUnsupported, err)
	case err != nil:
		return Report{}, fmt.Errorf("local: engine %s: %w", e, err)
	}
	return reportOf(found), nil
}

// reportOf converts the fields of an engine's report.
func reportOf(r engine.Report) Report {
	report := Report{
		Engine: Engine(r.Engine), Isolation: Isolation(r.Isolation), IsolationNote: r.IsolationNote, UserIDs: int(r.IDs), Notes: r.Notes,
		Memory: r.Memory, CPU: r.CPU, Processes: r.Processes, Disk: r.Disk, Egress: r.Egress, Pause: r.Pause,
	}
	for _, f := range engine.Features {
		report.Promises = append(report.Promises, Promise{string(f), r.Promises[f]})
	}
	return report
}

func (r running) report() Report {
	report := reportOf(r.Report())
	report.StateNotes = r.StateNotes()
	report.Notes = slices.Concat(report.Notes, report.StateNotes)
	report.addPython(r.Python())
	return report
}

// addPython adds the Python that was found on this machine to the report.
func (r *Report) addPython(env *pyenv.Env) {
	r.Python = env.Python
	// The other engines do not use it for kernels.
	if env.Note != "" && (r.Engine == EngineRoom || r.Engine == EngineGVisor) {
		r.PythonNote = env.Note
		r.Notes = append(r.Notes, env.Note)
	}
}
