package cmdutil

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/sandbox/local"
)

// TestNotEnforced checks that a requested limit is named if nothing enforces it.
func TestNotEnforced(t *testing.T) {
	t.Parallel()
	report := local.Report{Memory: "control group", CPU: "not enforced: no group", Processes: "not enforced: no group", Disk: "not enforced: the driver limits nothing"}
	for name, tt := range map[string]struct {
		flags ResourceFlags
		want  []string
	}{
		"none":       {ResourceFlags{}, nil},
		"enforced":   {ResourceFlags{memory: 1 << 30}, nil},
		"disk":       {ResourceFlags{disk: 512 << 20}, []string{"--disk is not enforced: the driver limits nothing"}},
		"cpus, pids": {ResourceFlags{cpus: 1, pids: 20}, []string{"--cpus is not enforced: no group", "--pids is not enforced: no group"}},
	} {
		if diff := cmp.Diff(tt.want, tt.flags.NotEnforced(report)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
	all := ResourceFlags{memory: 1 << 30, cpus: 1, pids: 20, disk: 1 << 30}
	report = local.Report{Memory: "not enforced: 1", CPU: "not enforced: 2", Processes: "not enforced: 3", Disk: "not enforced: 4"}
	want := []string{"--memory is not enforced: 1", "--cpus is not enforced: 2", "--pids is not enforced: 3", "--disk is not enforced: 4"}
	if diff := cmp.Diff(want, all.NotEnforced(report)); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
}
