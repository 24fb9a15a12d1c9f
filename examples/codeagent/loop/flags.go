package loop

import (
	"cmp"
	"flag"
	"os"

	"github.com/e2bctl/e2bctl/sandbox"
)

// ModelFlag adds the flags -url and -model, with the defaults OPENAI_BASE_URL and OPENAI_MODEL.
// It returns the model, whose fields are set when the flags are parsed. The key comes only from
// the environment variable OPENAI_API_KEY, so no list of processes shows it.
func ModelFlag(flags *flag.FlagSet) *Model {
	m := &Model{Key: sandbox.Key(os.Getenv("OPENAI_API_KEY"))}
	flags.StringVar(&m.URL, "url", cmp.Or(os.Getenv("OPENAI_BASE_URL"), "https://api.openai.com/v1"), "`address` of the model's endpoint, above /chat/completions")
	flags.StringVar(&m.Name, "model", os.Getenv("OPENAI_MODEL"), "`name` of the model")
	return m
}
