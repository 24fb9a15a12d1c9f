package main

import (
	"fmt"
	"log"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/examples/codeagent/loop"
	"github.com/e2bctl/e2bctl/examples/codeagent/loop/modeltest"
	"github.com/e2bctl/e2bctl/examples/internal/leak"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// roleOf returns the role of the agent that asks.
func roleOf(chat []loop.Message) string {
	for role := range roles {
		if strings.Contains(chat[0].Content, role) {
			return role
		}
	}
	return ""
}

// reply returns the scripted model's answer.
func reply(chat []loop.Message) string {
	turns := roles[roleOf(chat)]
	return modeltest.Code(turns[min(modeltest.Turn(chat), len(turns)-1)])
}

// newTeam returns a team whose sandboxes are like those of the program.
func newTeam(t *testing.T, cloud *sandboxtest.Cloud) *team {
	t.Helper()
	create := func() *sandbox.Sandbox {
		return cloud.Create(t, sandbox.WithInternet(false), sandbox.WithPrivateTraffic())
	}
	return &team{log: log.New(t.Output(), "", 0), shared: create(), apart: create()}
}

// TestNoCredentialInTheSandboxes checks that the team solves its task, and that the key of
// its model is nowhere in its sandboxes, neither while it works nor afterwards.
func TestNoCredentialInTheSandboxes(t *testing.T) {
	key := leak.New("sk-")
	t.Setenv("OPENAI_API_KEY", key.Text) // as in the program
	members := newTeam(t, leak.Cloud(t))
	look := func(when string) map[*sandbox.Sandbox][]int {
		memories := map[*sandbox.Sandbox][]int{}
		for _, sb := range []*sandbox.Sandbox{members.shared, members.apart} {
			f, err := key.Search(t.Context(), sb)
			if err != nil {
				t.Errorf("%s: %v", when, err)
				continue
			}
			if len(f.Found) > 0 {
				t.Errorf("%s the key is in %q", when, f.Found)
			}
			t.Logf("%s: read the memory of %d processes, %d MiB, and %d files; refused: %q", when, len(f.Memories), f.Bytes>>20, f.Files, f.Refused)
			memories[sb] = f.Memories
		}
		return memories
	}
	var during map[*sandbox.Sandbox][]int
	searches := 0
	members.model = modeltest.New(t, sandbox.Key(key.Text), func(chat []loop.Message) string {
		// At an agent's last question everything that it was told is in its sandbox, and
		// the code that called it is waiting.
		if role, turn := roleOf(chat), modeltest.Turn(chat); turn == len(roles[role])-1 {
			during = look(fmt.Sprintf("At question %d of %.20q", turn, role))
			searches++
		}
		return reply(chat)
	})
	answer, err := members.solve(t.Context(), fibonacci)
	var number int
	if err == nil {
		err = answer.Decode(&number)
	}
	if err != nil || number != 6765 || searches != len(roles) {
		t.Fatalf("the answer is %d, %v, after %d searches", number, err, searches)
	}
	after := look("Afterwards")
	searched := 0
	for _, sb := range []*sandbox.Sandbox{members.shared, members.apart} {
		kernels, err := key.SearchKernels(t.Context(), sb)
		must.Do(t, err)
		for _, kernel := range kernels {
			searched++
			if len(kernel.Found) > 0 {
				t.Errorf("a kernel has the key in %q", kernel.Found)
			}
			if !slices.Contains(during[sb], kernel.PID) || !slices.Contains(after[sb], kernel.PID) {
				t.Errorf("the memory of the kernel %d was not searched: %v, %v", kernel.PID, during, after)
			}
		}
	}
	if searched != len(roles) {
		t.Errorf("%d kernels were searched", searched)
	}
}

func TestMultiagent(t *testing.T) {
	sandboxtest.New(t).Setenv(t)
	const key = "sk-0123456789abcdef"
	model := modeltest.New(t, key, reply)
	for name, here := range map[string]bool{"local": true, "service": false} {
		t.Run(name, func(t *testing.T) {
			var shown strings.Builder
			if err := run(t.Context(), &shown, model, here, fibonacci); err != nil {
				t.Fatalf("%v\n%s", err, shown.String())
			}
			want := `programmer: asked: Compute the 20th Fibonacci number as an int. The first and the second are 1.
programmer: 3 steps, 1 errors, 300 tokens: 6765
checker: asked: Is 6765 the 20th Fibonacci number, when the first and the second are 1?
checker: 2 steps, 0 errors, 200 tokens: map[right:true why:Binet's formula gives 6765.]
manager: 3 steps, 0 errors, 300 tokens: 6765
=> 6765
`
			if diff := cmp.Diff(want, shown.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("scripted", func(t *testing.T) {
		var said, shown strings.Builder
		model := &loop.Model{}
		must.Do(t, model.UseScript(&said, roles, ""))
		if err := run(t.Context(), &shown, model, true, fibonacci); err != nil || !strings.HasSuffix(shown.String(), "\n=> 6765\n") {
			t.Errorf("%v\n%s", err, shown.String())
		}
		if !strings.Contains(said.String(), "a scripted one answers") {
			t.Errorf("it said %q", said.String())
		}
		if err := (&loop.Model{}).UseScript(&said, roles, "Another?"); err == nil {
			t.Error("a task of one's own without a model was no error")
		}
	})
	t.Run("another key", func(t *testing.T) {
		stranger := *model
		stranger.Key = "sk-fedcba9876543210"
		if err := run(t.Context(), t.Output(), &stranger, true, fibonacci); err == nil || !strings.Contains(err.Error(), "401") {
			t.Error(err)
		}
	})
}

// TestAgentFails checks that an agent that fails raises an exception in the manager's code,
// and does not end the manager's run.
func TestAgentFails(t *testing.T) {
	t.Parallel()
	members := newTeam(t, sandboxtest.New(t))
	members.model = modeltest.New(t, "sk-0123456789abcdef", func(chat []loop.Message) string {
		switch told := chat[len(chat)-1].Content; {
		case roleOf(chat) == programmerRole:
			return modeltest.Code("1")
		case modeltest.Turn(chat) == 0:
			return modeltest.Code("programmer('Never end.')")
		case !strings.Contains(told, "ToolError: programmer: agent: the run has no steps left"):
			t.Errorf("the manager was told %s", told)
		}
		return modeltest.Code("final_answer('none')")
	})
	if answer, err := members.solve(t.Context(), "Do"); err != nil || text(answer) != "none" {
		t.Errorf("%s, %v", text(answer), err)
	}
}
