package builds

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

// TestCommandsOfATemplate checks the commands that a build runs at its end, and the lines of the log about
// them.
func TestCommandsOfATemplate(t *testing.T) {
	t.Parallel()
	const started, ready = "finalize INFO Running start command: ", "finalize INFO Waiting for template to be ready: "
	for _, tt := range []struct {
		start, ready string
		ran          []string
		log          []string
	}{
		{"", "", nil, nil},
		{"print begun", "", []string{"print begun"}, []string{started + "print begun", ready + "sleep 20", "finalize INFO begun", "finalize INFO Template is ready: its start command has ended, and nothing else is waited for"}},
		{"", "third", []string{"third", "third", "third"}, []string{ready + "third", "finalize INFO Template is ready"}},
		{"sleep", "after sleep", []string{"sleep"}, []string{started + "sleep", ready + "after sleep", "finalize INFO Template is ready"}},
		{"print begun", "third", []string{"print begun", "third", "third", "third"}, []string{started + "print begun", ready + "third", "finalize INFO begun", "finalize INFO Template is ready"}},
	} {
		w := newWorld()
		s := w.serve(t, t.TempDir())
		_, log := s.built(t, "job", Spec{FromImage: "e2bdev/base", Start: tt.start, Ready: tt.ready})
		// Both commands run at once. The end of the first may come before the start of a sleep, and the
		// second may have to be repeated.
		ran := slices.DeleteFunc(w.ran, func(line string) bool { return strings.HasPrefix(line, "sleep ") || strings.HasPrefix(line, "after ") })
		slices.Sort(ran)
		if diff := cmp.Diff(tt.ran, ran); diff != "" {
			t.Errorf("%q and %q: commands that ran (-want +got):\n%s", tt.start, tt.ready, diff)
		}
		var said []string
		for line := range strings.Lines(log) {
			if strings.HasPrefix(line, stepFinalize) {
				said = append(said, strings.TrimSpace(line))
			}
		}
		slices.Sort(said)
		slices.Sort(tt.log)
		if diff := cmp.Diff(tt.log, said); diff != "" {
			t.Errorf("%q and %q: the log (-want +got):\n%s", tt.start, tt.ready, diff)
		}
	}
}

// TestCommandsOfTheBase checks that a template has the commands of its base, unless its build names a
// command.
func TestCommandsOfTheBase(t *testing.T) {
	t.Parallel()
	s := newWorld().serve(t, t.TempDir())
	s.built(t, "parent", Spec{FromImage: "e2bdev/base", Start: "print a", Ready: "print b"})
	for asked, want := range map[[2]string][2]string{
		{"", ""}: {"print a", "print b"}, {"print c", ""}: {"print c", ""}, {"", "print d"}: {"", "print d"}, {"print c", "print d"}: {"print c", "print d"},
	} {
		build, _ := s.built(t, "child", Spec{FromTemplate: "parent", Start: asked[0], Ready: asked[1]})
		if got := [2]string{build.Start, build.Ready}; got != want {
			t.Errorf("%q: got %q, want %q", asked, got, want)
		}
	}
}

// TestVariablesOfCommands checks that a command has the variables of the template, and that the variables
// of the ready command itself come before them.
func TestVariablesOfCommands(t *testing.T) {
	t.Parallel()
	s := newWorld().serve(t, t.TempDir())
	_, log := s.built(t, "job", Spec{FromImage: "e2bdev/base", Ready: "who", Steps: []Step{{Type: "ENV", Args: []string{"PROC_ROOT", "/x"}}, {Type: "RUN", Args: []string{"who"}}}})
	for _, want := range []string{"2 INFO user in /home/user with /x\n", "finalize DEBUG user in /home/user with /proc\n"} {
		if !strings.Contains(log, want) {
			t.Errorf("want %q:\n%s", want, log)
		}
	}
}

// TestSilentCommandFails checks the message for a command that fails without output.
func TestSilentCommandFails(t *testing.T) {
	t.Parallel()
	s := newWorld().serve(t, t.TempDir())
	id := s.request(t, "job")
	s.begin(t, id, "exit")
	status, log := s.end(t, id)
	if want := "failed to run command 'exit': exit status 4"; status.Status != templates.Failed || status.Failure.Message != want {
		t.Errorf("got %s %+v, want %q:\n%s", status.Status, status.Failure, want, log)
	}
}
