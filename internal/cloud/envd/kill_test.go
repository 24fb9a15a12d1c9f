//go:build linux

package envd

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestKillAnswersAtTheEnd: after the answer the process has gone, is not listed
// and cannot be killed again, whether or not a client reads its output.
func TestKillAnswersAtTheEnd(t *testing.T) {
	t.Parallel()
	d := serve(t)
	d.server.processes.grace = patience.Limit // only the kill ends the wait for held output
	for name, script := range map[string]string{
		"quiet":  `exec sleep 600`,
		"unread": `exec yes`,
		"ended":  `sleep 600 & exit 0`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 60 {
				s, pid := d.begin(t, connect.NewRequest(shell(script)))
				_, err := d.processes().SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{
					Process: byPid(pid), Signal: process.Signal_SIGNAL_SIGKILL,
				}))
				must.Do(t, err)
				if state := stateOf(int(pid)); state != "" {
					t.Errorf("process %d is in state %s after it was killed", pid, state)
				}
				list, err := d.processes().List(t.Context(), connect.NewRequest(&process.ListRequest{}))
				must.Do(t, err)
				for _, p := range list.Msg.GetProcesses() {
					if p.GetPid() == pid {
						t.Errorf("process %d is listed after it was killed", pid)
					}
				}
				_, err = d.processes().SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{
					Process: byPid(pid), Signal: process.Signal_SIGNAL_SIGKILL,
				}))
				if connect.CodeOf(err) != connect.CodeNotFound {
					t.Errorf("killed again: %v, want not_found", err)
				}
				if r, err := collect(d.attach(t, t.Context(), byPid(pid))); err != nil || r.end == nil {
					t.Errorf("the end of process %d is not known: %+v, %v, want an end and no error", pid, r, err)
				}
				s.Close()
			}
		})
	}
}
