//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestPauseInterruptsRequest checks that a client of the interpreter that a pause cut off
// counts as one that went away: its code is interrupted when the sandbox continues, and
// the kernel is free.
func TestPauseInterruptsRequest(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0), local.WithStateDir(filepath.Join(t.TempDir(), "state")))
	var work errgroup.Group
	for range 4 {
		sb := cloud.Create(t)
		info, err := sb.Info(t.Context())
		must.Do(t, err)
		work.Go(func() error {
			for i := range 10 {
				if err := interruptByPause(t, cloud.URL(), string(info.AccessToken), sb); err != nil {
					return fmt.Errorf("time %d: %w", i, err)
				}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		t.Error(err)
	}
}

func interruptByPause(t *testing.T, url, token string, sb *sandbox.Sandbox) error {
	ctx := patience.Context(t)
	execute := func(code string) (io.ReadCloser, error) {
		body, err := json.Marshal(map[string]string{"code": code})
		if err != nil {
			return nil, err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/execute", bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set(protocol.HeaderSandboxID, sb.ID())
		request.Header.Set(protocol.HeaderSandboxPort, fmt.Sprint(protocol.PortInterpreter))
		request.Header.Set(protocol.HeaderAccess, token)
		request.Header.Set("Content-Type", "application/json")
		response, err := clienttest.New(t).Do(request)
		if err != nil {
			return nil, err
		}
		return response.Body, nil
	}
	for _, code := range []string{"x = 41", "import time\nprint('started', flush=True)\ntime.sleep(600)\nx = 0", "x + 1"} {
		answer, err := execute(code)
		if err != nil {
			return fmt.Errorf("%s: %w", code, err)
		}
		lines := bufio.NewScanner(answer)
		var last string
		for lines.Scan() {
			last += lines.Text()
			if strings.Contains(last, "started") {
				if err := sb.Pause(ctx, nil); err != nil {
					return err
				}
			}
		}
		answer.Close()
		switch {
		case strings.Contains(code, "sleep"):
			if err := sb.Resume(ctx, nil); err != nil {
				return err
			}
		case lines.Err() != nil:
			return fmt.Errorf("%s: %w", code, lines.Err())
		case code == "x + 1" && !strings.Contains(last, "42"):
			return fmt.Errorf("got %s, want 42", last)
		}
	}
	return nil
}
