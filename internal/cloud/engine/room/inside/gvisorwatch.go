//go:build linux

package inside

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// lifePause is the pause between two checks of envd. answerTime is the maximum time for an answer.
// After maxMisses missing answers in a row, envd counts as silent. An overloaded machine may delay
// one of these answers, but not all of them.
const (
	lifePause  = 20 * time.Second
	answerTime = 8 * time.Second // longest wait for an answer; less than link.DialTimeout
	maxMisses  = 3
	silentTime = maxMisses*lifePause + answerTime
)

// errSilent is the reason for the end of a sandbox whose envd is stopped or hangs. If such a sandbox
// did not end, each call to it would hang, and would still extend its lifetime.
var errSilent = fmt.Errorf("envd did not answer for %v", silentTime)

// watchEnvd dials envd again and again. It returns [errSilent] when envd does not answer, or nil
// when ctx ends. stops is [checkpointer.stops]: stopped processes do not answer.
func watchEnvd(ctx context.Context, dial func(ctx context.Context, port uint16) (net.Conn, error), stops func() (bool, int)) error {
	pause := time.NewTicker(lifePause)
	defer pause.Stop()
	for misses := 0; misses < maxMisses; {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		still, change := stops()
		if still {
			misses = 0
			continue
		}
		asking, cancel := context.WithTimeout(ctx, answerTime)
		conn, err := dial(asking, protocol.PortEnvd)
		late := asking.Err() != nil
		cancel()
		if err == nil {
			_ = conn.Close()
		}
		if _, now := stops(); err == nil || !late || now != change {
			misses = 0 // a refusal is an answer, too
			continue
		}
		misses++
	}
	return errSilent
}
