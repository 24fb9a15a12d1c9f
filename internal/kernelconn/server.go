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

// Server carries requests to the services inside a sandbox.
type Server interface {
	// Do makes a request to a port, with a body of JSON unless body is nil. If stream is
	// false the answer must arrive completely, and so in a limited time.
	Do(ctx context.Context, port int, method, path string, body []byte, stream bool) (*http.Response, error)
	// Dial opens the websocket at a path of the kernels' server.
	Dial(ctx context.Context, path string) (*jupyter.Conn, error)
	// Gone reports whether an error of Dial means that the sandbox no longer exists.
	Gone(err error) bool
	// Settle is called when a connection was cut. It waits while this program itself keeps
	// the sandbox paused. Then it reports whether the sandbox is paused, or was paused
	// since the connection was made: the next Dial may take as long as a resume.
	Settle(ctx context.Context, made time.Time) (paused bool)
}

// json makes a request with a JSON answer, which must have the status 200 and is decoded
// into out. If out is nil, any answer with a status below 300 is accepted.
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

// control asks the kernels' server to do something with a kernel.
func (ks *Kernels) control(ctx context.Context, method, id, verb string) error {
	return ks.json(ctx, protocol.PortJupyter, method, "/api/kernels/"+id+verb, nil, nil)
}

// kill ends the kernel of a context when nothing else could end it. The next call notices
// that it is gone, and uses its replacement.
func (ks *Kernels) kill(ctx context.Context, id, why string) error {
	if err := ks.control(ctx, http.MethodDelete, id, ""); err != nil {
		return err
	}
	ks.lose(id, why)
	return nil
}

// environment returns the environment of the sandbox. A handle that did not create the
// sandbox asks envd. The kernel already has the variables that the service itself sets.
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

// state asks the server for the last known state of the kernel, such as "busy" or "idle".
// A kernel that does not exist is "dead"; empty means that the server gave no state.
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
