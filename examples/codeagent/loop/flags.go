package loop

import (
	"cmp"
	"flag"
	"os"

	"github.com/e2bctl/e2bctl/sandbox"
)

// ModelFlag adds the flags -url and -model, whose defaults are OPENAI_BASE_URL and
// OPENAI_MODEL, and returns the model that they name once they are parsed. The key
// comes only from OPENAI_API_KEY of the environment, where no list of processes
// shows it.
func ModelFlag(flags *flag.FlagSet) *Model {
	m := &Model{Key: sandbox.Key(os.Getenv("OPENAI_API_KEY"))}
	flags.StringVar(&m.URL, "url", cmp.Or(os.Getenv("OPENAI_BASE_URL"), "https://api.openai.com/v1"), "`address` of the model's endpoint, above /chat/completions")
	flags.StringVar(&m.Name, "model", os.Getenv("OPENAI_MODEL"), "`name` of the model")
	return m
}
