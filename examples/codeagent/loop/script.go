package loop

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// The examples of agents all print in the same form: "--- step N" before the code of a step,
// "--- gave" before the model's view of its result, "=> " before the answer, and "NAME: "
// before the output of one of several agents. Notes about the example itself, such as that its
// model is scripted, go to standard error.

// Script is a model with fixed answers, so that an example runs without an account. The keys
// are instructions of agents ("" means every agent). The values are the code of the model's
// answers, one snippet for each step.
type Script map[string][]string

// UseScript does nothing if m.Name is set. Otherwise it makes m answer from a script, and prints a
// note about that to w. task is the user's task. With a script, task must be empty, because the
// script solves only the example's own task.
func (m *Model) UseScript(w io.Writer, script Script, task string) error {
	if m.Name != "" {
		return nil
	}
	if task != "" {
		return errors.New("a task of your own needs a model: set -model or OPENAI_MODEL")
	}
	m.Script = script
	_, err := fmt.Fprintln(w, "no model is set (-model or OPENAI_MODEL): a scripted one answers")
	return err
}

// complete returns the next answer in a conversation.
func (s Script) complete(chat []Message) (*Completion, error) {
	turn := (len(chat) - 1) / 2 // the system's message, then questions and answers in turn
	for instructions, snippets := range s {
		if turn < len(snippets) && strings.Contains(chat[0].Content, instructions) {
			return &Completion{Text: "```python\n" + snippets[turn] + "\n```"}, nil
		}
	}
	return nil, errors.New("the scripted model has no more to say")
}
