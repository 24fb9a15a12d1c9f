//go:build linux

package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/control"
	"github.com/e2bctl/e2bctl/internal/cloud/edge"
	"github.com/e2bctl/e2bctl/internal/cloud/python"
	"github.com/e2bctl/e2bctl/internal/cloud/reexec"
	"github.com/e2bctl/e2bctl/internal/cloud/runtime"
)

// maxConfig is what a room hands to an agent at most.
const maxConfig = 1 << 20

// launch starts a sandbox and makes its ports reachable.
func (c *Cloud) launch(ctx context.Context, spec control.Spec) (control.Instance, error) {
	config, err := json.Marshal(c.config(spec))
	if err != nil {
		return nil, err
	}
	if len(config) > maxConfig {
		return nil, &control.RefusedError{Reason: fmt.Sprintf("envVars are too large: a sandbox takes %d KiB in all", maxConfig>>10)}
	}
	o := runtime.SandboxOptions{ID: spec.ID, Limits: c.options.Limits, Config: config}
	if spec.Internet {
		o.Egress = c.dialer.Dial
	}
	sandbox, err := c.room.newSandbox(ctx, o)
	if err != nil {
		return nil, err
	}
	c.router.Add(edge.Sandbox{
		ID: spec.ID, AccessToken: spec.AccessToken, TrafficToken: spec.TrafficToken, MaskHost: spec.MaskHost,
		Dial: func(ctx context.Context, port int) (net.Conn, error) {
			conn, err := sandbox.Dial(ctx, port)
			return conn, edgeError(err)
		},
	})
	return &reachable{instance: sandbox, router: c.router, id: spec.ID}, nil
}

// warmConfig is the configuration of what kernels are forked from.
func (c *Cloud) warmConfig() (json.RawMessage, error) {
	return json.Marshal(reexec.Config{System: c.system(), Python: []string{c.python.Python}})
}

// system are the variables that every process of a sandbox has.
func (c *Cloud) system() map[string]string {
	system := map[string]string{}
	for _, v := range c.python.Vars {
		name, value, _ := strings.Cut(v, "=")
		system[name] = value
	}
	return system
}

func (c *Cloud) config(spec control.Spec) reexec.Config {
	return reexec.Config{
		SandboxID: spec.ID, TemplateID: spec.TemplateID, AccessToken: spec.AccessToken,
		Envs: maps.Clone(spec.Envs), System: c.system(),
		Python: []string{c.python.Python}, Path: searchPath(c.python),
		MemoryBytes: uint64(c.options.Limits.MemoryBytes), CPUs: int(math.Ceil(c.options.Limits.CPUs)),
	}
}

// edgeError says what the room said in the edge's words.
func edgeError(err error) error {
	switch {
	case errors.Is(err, runtime.ErrPortClosed):
		return fmt.Errorf("%w: %w", edge.ErrPortClosed, err)
	case errors.Is(err, runtime.ErrGone):
		return fmt.Errorf("%w: %w", edge.ErrGone, err)
	}
	return err
}

// reachable is a sandbox that the router knows until it is closed.
type reachable struct {
	instance
	router *edge.Router
	id     string
}

func (r *reachable) Close() error {
	r.router.Remove(r.id)
	return r.instance.Close()
}

// searchPath is the PATH inside: what kernels run comes first, so that pip in a
// command installs for them.
func searchPath(env *python.Env) string {
	return filepath.Dir(env.Python) + ":" + runtime.DefaultPath
}
