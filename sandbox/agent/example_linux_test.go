package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/e2bctl/e2bctl/internal/exampletest"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/state"
)

func TestExamples(t *testing.T) { exampletest.Check(t) }

// A run is the loop of an agent: the snippets here stand for a model's answers.
func ExampleBegin() {
	defer exampletest.StartCloud()() // only here: your program has E2B_API_KEY, or local.Start

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		values := state.New()
		if err := values.Set("prices", map[string]float64{"apple": 1.5, "pear": 2}); err != nil {
			return err
		}
		run, err := agent.Begin(ctx, sb, &agent.Params{State: values, Limits: agent.Limits{MaxSteps: 8}})
		if err != nil {
			return err
		}
		defer run.Close()
		for _, code := range []string{"prices['fig']", "final_answer(sum(prices.values()))"} {
			step, err := run.Exec(ctx, code)
			if err != nil {
				return err
			}
			if step.Error != nil { // no error of the run: the model sees it and tries again
				fmt.Println(step.Error.Name)
			}
			if step.Final {
				var sum float64
				if err := step.Decode(&sum); err != nil {
					return err
				}
				fmt.Println("the answer is", sum)
			}
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// KeyError
	// the answer is 3.5
}

// State goes there and back typed.
func ExampleRun_Pull() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		values := state.New()
		if err := values.Set("scores", []int{3, 1, 2}); err != nil {
			return err
		}
		run, err := agent.Begin(ctx, sb, &agent.Params{State: values})
		if err != nil {
			return err
		}
		defer run.Close()
		if _, err := run.Exec(ctx, "scores.sort()\nbest = scores[-1]"); err != nil {
			return err
		}
		if err := run.Pull(ctx, values); err != nil {
			return err
		}
		var scores []int
		if err := values.Get("scores", &scores); err != nil {
			return err
		}
		fmt.Println(values.Names(), scores)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [best scores] [1 2 3]
}

// A tool is a function of this program that code in the sandbox calls by name.
func ExampleMustTool() {
	defer exampletest.StartCloud()()

	type question struct {
		Fruit string `py:"fruit" doc:"its name, in the singular"`
	}
	price := agent.MustTool("price", "Returns the price of a fruit.", func(_ context.Context, q question) (float64, error) {
		if q.Fruit != "apple" {
			return 0, fmt.Errorf("no price for %q", q.Fruit) // an exception in the code
		}
		return 1.5, nil
	})
	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		run, err := agent.Begin(ctx, sb, &agent.Params{Tools: []agent.Tool{price}})
		if err != nil {
			return err
		}
		defer run.Close()
		step, err := run.Exec(ctx, "final_answer(10 * price('apple'))")
		if err != nil {
			return err
		}
		var total float64
		if err := step.Decode(&total); err != nil {
			return err
		}
		fmt.Println(total)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: 15
}

// A tool that another program described: the schema comes from that program, and the call
// goes to it.
func ExampleToolFromSchema() {
	defer exampletest.StartCloud()()

	schema := json.RawMessage(`{"type": "object", "properties": {"max-results": {"type": "integer"}, "query": {"type": "string"}}, "required": ["query"]}`)
	search, err := agent.ToolFromSchema("search", "Searches the archive.", schema, func(_ context.Context, arguments json.RawMessage) (any, error) {
		return json.RawMessage(`{"found": ["a", "b"], "for": ` + string(arguments) + `}`), nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(search.Signature())
	err = sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		run, err := agent.Begin(ctx, sb, &agent.Params{Tools: []agent.Tool{search}})
		if err != nil {
			return err
		}
		defer run.Close()
		step, err := run.Exec(ctx, "search('apples', max_results=2)")
		if err != nil {
			return err
		}
		fmt.Println(step.Value)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// search(query: str, max_results: int = None) -> Any
	// {'found': ['a', 'b'], 'for': {'max-results': 2, 'query': 'apples'}}
}

// A managed agent is a tool that runs an agent of its own: here its loop is one
// step in another context of the same sandbox.
func ExampleMustManaged() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		desk, err := sb.Contexts.Create(ctx, nil)
		if err != nil {
			return err
		}
		budget := agent.Budget{MaxDepth: -1, MaxCalls: 10, MaxTokens: 50_000}
		counter := agent.MustManaged("counter", "Counts words.", budget, func(ctx context.Context, task string) (state.Value, error) {
			values := state.New()
			if err := values.Set("text", task); err != nil {
				return state.Value{}, err
			}
			run, err := agent.Begin(ctx, sb, &agent.Params{Context: desk.ID, State: values})
			if err != nil {
				return state.Value{}, err
			}
			defer run.Close()
			step, err := run.Exec(ctx, "final_answer(len(text.split()))") // the model's answer
			if err != nil {
				return state.Value{}, err
			}
			return step.Value, nil
		})

		run, err := agent.Begin(ctx, sb, &agent.Params{Tools: []agent.Tool{counter}})
		if err != nil {
			return err
		}
		defer run.Close()
		step, err := run.Exec(ctx, "final_answer(counter('to be or not to be'))")
		if err != nil {
			return err
		}
		var words int
		if err := step.Decode(&words); err != nil {
			return err
		}
		fmt.Println(words, "words")
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: 6 words
}

// A guard tells a model which actions are forbidden, and names alternatives.
func ExampleGuard() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		run, err := agent.Begin(ctx, sb, &agent.Params{
			Guard: &agent.Guard{Presets: []agent.Preset{agent.TextProcessing}},
		})
		if err != nil {
			return err
		}
		defer run.Close()
		for _, code := range []string{"import re\nre.findall('[a-z]', 'A1b2')", "import subprocess"} {
			step, err := run.Exec(ctx, code)
			if err != nil {
				return err
			}
			if v := step.Refused; v != nil {
				fmt.Println("refused:", v.Rule, v.Name, "in line", v.Line)
				continue
			}
			fmt.Println(step.Text())
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// ['b']
	// refused: import subprocess in line 1
}
