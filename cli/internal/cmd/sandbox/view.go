package sandbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// sandboxView is a sandbox as -o json shows it, with the field names of the API.
type sandboxView struct {
	SandboxID   string            `json:"sandboxID"`
	TemplateID  string            `json:"templateID"`
	Alias       string            `json:"alias,omitempty"`
	State       string            `json:"state"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int64             `json:"memoryMB"`
	DiskSizeMB  int64             `json:"diskSizeMB"`
	EnvdVersion string            `json:"envdVersion"`
	Metadata    map[string]string `json:"metadata"`

	PauseMode               string     `json:"pauseMode,omitempty"`
	EnvdUnresponsiveAtPause bool       `json:"envdUnresponsiveAtPause,omitempty"`
	Lifecycle               *lifecycle `json:"lifecycle,omitempty"`

	IdleTimeout float64 `json:"idleTimeout,omitempty"` // seconds

	Image  string          `json:"image,omitempty"`
	Engine string          `json:"engine,omitempty"`
	Mounts []sandbox.Mount `json:"mounts,omitempty"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

func viewOf(info *sandbox.Info) sandboxView {
	v := sandboxView{
		SandboxID: info.ID, TemplateID: info.TemplateID, Alias: info.Alias, State: string(info.State),
		StartedAt: info.StartedAt.UTC(), EndAt: info.EndAt.UTC(),
		CPUCount: info.CPUs, MemoryMB: info.MemoryBytes >> 20, DiskSizeMB: info.DiskBytes >> 20,
		EnvdVersion: info.EnvdVersion, Metadata: info.Metadata,
		PauseMode: string(info.PauseMode), EnvdUnresponsiveAtPause: info.EnvdUnresponsiveAtPause,
		IdleTimeout: info.Idle.Seconds(), Image: info.Image, Engine: string(info.Engine), Mounts: info.Mounts,
	}
	if l := info.Lifecycle; l != nil {
		v.Lifecycle = &lifecycle{string(l.OnTimeout), l.AutoResume}
	}
	if v.Metadata == nil {
		v.Metadata = map[string]string{}
	}
	return v
}

// writeChanged writes the ID of a sandbox that a command has changed, or the whole sandbox as JSON.
func writeChanged(ctx context.Context, conn *cmdutil.Connection, io *cmdutil.IOStreams, id string, json bool) error {
	if !json {
		_, err := fmt.Fprintln(io.Out, cmdutil.Printable(id))
		return err
	}
	info, err := conn.Info(ctx, id)
	if err != nil {
		return err
	}
	return cmdutil.WriteJSON(io.Out, viewOf(info))
}

// templateName returns the template's name or, if it has none, its ID.
func templateName(info *sandbox.Info) string {
	if info.Alias != "" {
		return info.Alias
	}
	return info.TemplateID
}

func metadataText(m map[string]string) string {
	if len(m) == 0 {
		return ""
	}
	pairs := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, k+"="+m[k])
	}
	return strings.Join(pairs, ", ")
}
