package agentmcp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/text/unicode/norm"

	"github.com/e2bctl/e2bctl/state"
)

// pythonNames returns a Python name for each tool. All names are different.
func pythonNames(prefix string, tools []*mcp.Tool) []string {
	names, order := make([]string, len(tools)), make([]int, len(tools))
	for i, t := range tools {
		names[i], order[i] = pythonName(prefix, t.Name), i
	}
	changed := func(i int) int {
		if names[i] == prefix+tools[i].Name {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(changed(a)-changed(b), strings.Compare(tools[a].Name, tools[b].Name))
	})
	taken, tried := make(map[string]bool, len(tools)), map[string]int{}
	for _, i := range order {
		base := names[i]
		for taken[names[i]] {
			tried[base]++
			names[i] = fmt.Sprintf("%s_%d", base, tried[base]+1)
		}
		taken[names[i]] = true
	}
	return names
}

// pythonName returns a Python name for one tool.
func pythonName(prefix, tool string) string {
	name := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return '_'
	}, norm.NFKC.String(tool))
	for _, candidate := range []string{prefix + name, prefix + name + "_", prefix + "tool_" + name} {
		if usable(candidate) {
			return candidate
		}
	}
	return prefix + "tool_" // no letter of the name is allowed in Python
}

// usable reports whether name can be the Python name of a tool. Names that begin with an underscore
// are reserved for IPython.
func usable(name string) bool {
	return state.CheckName(name) == nil && name != "final_answer" && !strings.HasPrefix(name, "_")
}
