package loop

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// The output of the examples of agents looks the same everywhere: "--- step N"
// before the code of a step, "--- gave" before the part of its result that the model
// sees, "=> " before the answer, and "NAME: " before the output of one of several
// agents. Notes about the example itself, such as that its model is scripted, go to
// the standard error.

// Script is a model whose answers are written down, so that an example runs without
// an account. Its keys are instructions of agents ("" is every agent), its values
// the code of the model's answers, one snippet a step.
type Script map[string][]string

// UseScript makes m answer from a script if it has no name, and tells w so. task is
// the user's task: the script solves the example's own task and no other.
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

// complete gives the next answer in a conversation.
func (s Script) complete(chat []Message) (*Completion, error) {
	turn := (len(chat) - 1) / 2 // the system's message, then question and answer in turn
	for instructions, snippets := range s {
		if turn < len(snippets) && strings.Contains(chat[0].Content, instructions) {
			return &Completion{Text: "```python\n" + snippets[turn] + "\n```"}, nil
		}
	}
	return nil, errors.New("the scripted model has no more to say")
}
