package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/e2bctl/e2bctl/internal/cloud"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/secrets"
)

type linux struct{ *cloud.Cloud }

func start(ctx context.Context, s settings) (service, error) {
	c, err := cloud.Start(ctx, cloud.Options{
		Address:      s.address,
		Domain:       s.domain,
		Authority:    s.authority,
		State:        s.state,
		SecretsKey:   os.Getenv(secrets.EnvKey),
		Key:          string(s.key),
		Isolation:    engine.Isolation(s.isolation),
		Binary:       s.binary,
		MaxSandboxes: s.maxSandboxes,
		Warm:         s.warm,
		Limits:       s.limits,
		VolumeSize:   s.volumeSize,
		Policy:       network.Policy{DenyPrivate: s.denyPrivate},
		ProxyNames:   s.proxyNames,
		Logger:       s.logger,
	})
	switch {
	case errors.Is(err, engine.ErrNoIsolation):
		return nil, fmt.Errorf("local: %w: %w", ErrNoIsolation, err)
	case err != nil:
		return nil, fmt.Errorf("local: %w", err)
	}
	return linux{c}, nil
}

func (l linux) trust() []string { return l.Trust().Env() }

func (l linux) report() Report {
	r, env := l.Report(), l.Python()
	report := Report{
		Isolation: Isolation(r.Isolation), UserIDs: int(r.IDs), Python: env.Python, PythonNote: env.Note,
		Memory: r.Memory, CPU: r.CPU, Processes: r.Processes, Disk: r.Disk, Egress: r.Egress, Pause: r.Pause,
		StateNotes: l.StateNotes(),
	}
	report.Notes = slices.Concat(r.Notes, report.StateNotes)
	if env.Note != "" {
		report.Notes = append(report.Notes, env.Note)
	}
	return report
}
