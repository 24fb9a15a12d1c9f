package kernelconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// Server sends requests to the services inside a sandbox.
type Server interface {
	// Do makes a request to a port, with the JSON in body. If body is nil, the request has no body.
	// If stream is false, the whole answer must arrive within a limited time.
	Do(ctx context.Context, port int, method, path string, body []byte, stream bool) (*http.Response, error)
	// Dial opens the websocket at a path of the kernels' server.
	Dial(ctx context.Context, path string) (*jupyter.Conn, error)
	// Gone reports whether an error of Dial means that the sandbox no longer exists.
	Gone(err error) bool
	// Settle is called when a connection was cut. It waits while this program itself keeps the
	// sandbox paused. Then it reports whether the sandbox is paused, or was paused since made, the
	// time when the connection was opened. If so, the next Dial may take as long as resuming a
	// sandbox.
	Settle(ctx context.Context, made time.Time) (paused bool)
}

// json makes a request, and decodes the JSON answer into out. The answer must have the status 200.
// If out is nil, json accepts any answer with a status below 300.
func (ks *Kernels) json(ctx context.Context, port int, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	response, err := ks.options.Server.Do(ctx, port, method, path, body, false)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return api.NewError(method, path, err)
	}
	switch {
	case out == nil && response.StatusCode < 300:
		return nil
	case response.StatusCode != http.StatusOK:
		return api.ResponseError(method, path, response.StatusCode, response.Header, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s %s: the answer is not the JSON expected: %w", method, path, err)
	}
	return nil
}

// dial opens a websocket to a kernel. The server then sends the messages that it kept
// since the session's last websocket was cut.
func (ks *Kernels) dial(ctx context.Context, id, session string) (*jupyter.Conn, error) {
	return ks.options.Server.Dial(ctx, "/api/kernels/"+id+"/channels?session_id="+session)
}

// control sends the kernels' server a request about a kernel. verb is the end of the request's
// path, such as /interrupt.
func (ks *Kernels) control(ctx context.Context, method, id, verb string) error {
	return ks.json(ctx, protocol.PortJupyter, method, "/api/kernels/"+id+verb, nil, nil)
}

// kill ends the kernel of a context when nothing else could end it. The next call notices that the
// kernel no longer exists, and uses its replacement. why is the reason.
func (ks *Kernels) kill(ctx context.Context, id, why string) error {
	if err := ks.control(ctx, http.MethodDelete, id, ""); err != nil {
		return err
	}
	ks.lose(id, why)
	return nil
}

// environment returns the environment variables of the sandbox. A handle that did not create the
// sandbox requests them from envd. It then leaves out the variables that the service itself sets,
// because the kernel already has them.
func (ks *Kernels) environment(ctx context.Context) map[string]string {
	if ks.options.Envs != nil {
		return ks.options.Envs
	}
	var envs map[string]string
	if err := ks.json(ctx, protocol.PortEnvd, http.MethodGet, "/envs", nil, &envs); err != nil {
		ks.options.Logger.DebugContext(ctx, "the sandbox's environment is not known", "sandbox", ks.options.SandboxID, "error", err)
		return nil
	}
	for name := range envs {
		if strings.HasPrefix(name, "E2B_") || name == "PATH" {
			delete(envs, name)
		}
	}
	return envs
}

// state asks the server for the last known state of the kernel, such as "busy" or "idle". If the
// kernel does not exist, the state is "dead". If the server gives no state, the result is "".
func (k *Kernel) state(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, otherHalf)
	defer cancel()
	var model struct {
		State string `json:"execution_state"`
	}
	if err := k.kernels.json(ctx, protocol.PortJupyter, http.MethodGet, "/api/kernels/"+k.id, nil, &model); errors.Is(err, api.ErrNotFound) {
		return "dead"
	}
	return model.State
}
