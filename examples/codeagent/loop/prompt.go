package loop

import (
	_ "embed"
	"slices"
	"strings"
	"text/template"

	"github.com/e2bctl/e2bctl/sandbox/agent"
)

//go:embed prompt.txt
var promptText string

var prompt = template.Must(template.New("prompt").Funcs(template.FuncMap{"join": strings.Join}).Parse(promptText))

// systemPrompt returns the prompt that describes a run to the model.
func systemPrompt(instructions string, p agent.Params) (string, error) {
	facts := struct {
		Instructions       string
		Tools              []agent.Tool
		Guarded            bool
		Modules, Variables []string
	}{Instructions: instructions, Tools: p.Tools}
	if p.State != nil {
		facts.Variables = p.State.Names()
	}
	if p.Guard != nil {
		facts.Guarded = true
		facts.Modules = append(agent.GuardModules(), p.Guard.Allow...)
		for _, preset := range p.Guard.Presets {
			facts.Modules = append(facts.Modules, preset.Modules()...)
		}
		slices.Sort(facts.Modules)
		facts.Modules = slices.Compact(facts.Modules)
	}
	var b strings.Builder
	err := prompt.Execute(&b, facts)
	return b.String(), err
}
