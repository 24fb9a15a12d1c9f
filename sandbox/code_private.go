package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/httpwait"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// ErrPublicKernel means that the kernels of the sandbox answer without a token, so anyone who knows
// the address of the sandbox could call the tools of an agent. For a run with tools in such a
// sandbox, agent.Begin returns this error. Create the sandbox with [WithPrivateTraffic].
var ErrPublicKernel = errors.New("sandbox: its kernels answer without a token, so others could call the tools: create it with WithPrivateTraffic()")

// private returns nil only if the kernels refuse a request without the sandbox's tokens.
func (sb *Sandbox) private(ctx context.Context) error {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, sb.baseURL(protocol.PortJupyter)+"/api/kernels", nil)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	r.Header.Set(protocol.HeaderSandboxID, sb.ID())
	r.Header.Set(protocol.HeaderSandboxPort, strconv.Itoa(protocol.PortJupyter))
	r.Header.Set("User-Agent", sb.client.api.UserAgent())
	const what = "find out whether the kernels are private"
	response, err := portClient{sb, protocol.PortJupyter}.answer(httpwait.Do(sb.client.http.Do, r, httpwait.Limits{Head: restHead}))
	if err != nil {
		return sb.failed(ctx, what, err)
	}
	defer response.Body.Close()
	switch code := response.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return nil
	case code >= 200 && code <= 299:
		return fmt.Errorf("%w (status %d)", ErrPublicKernel, code)
	}
	// No kernel answered, so the answer does not show who can reach the kernels.
	body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	return sb.failed(ctx, what, api.ResponseError(r.Method, r.URL.Path, response.StatusCode, response.Header, body))
}
