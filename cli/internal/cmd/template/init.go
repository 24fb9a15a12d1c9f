package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// language is the language of a template's definition.
type language string

const (
	languageDockerfile language = "dockerfile"
	languageGo         language = "go"
)

// String implements pflag.Value.
func (l *language) String() string { return string(*l) }

// Type implements pflag.Value.
func (l *language) Type() string { return "dockerfile|go" }

// Set implements pflag.Value.
func (l *language) Set(value string) error {
	switch language(value) {
	case languageDockerfile, languageGo:
		*l = language(value)
		return nil
	}
	return errors.New("want dockerfile or go; e2b template init writes typescript and python")
}

// dockerfile and program define the same template.
const (
	dockerfile = `FROM e2bdev/base
WORKDIR /home/user
ENV GREETING=hello
RUN mkdir -p site && echo "$GREETING" > site/index.html
# COPY . .
USER user
CMD cd /home/user/site && exec python3 -m http.server 8000
`
	program = `// Builds the template "hello": go run .
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

func main() {
	client, err := api.NewClient(api.FromEnv())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	hello := template.FromBase().
		Workdir("/home/user").
		Env(map[string]string{"GREETING": "hello"}).
		Run("mkdir -p site && echo \"$GREETING\" > site/index.html", nil).
		// Copy("files", ".", nil).
		Start("cd /home/user/site && exec python3 -m http.server 8000", template.WaitPort(8000))
	built, err := template.Build(context.Background(), client.Templates, "hello", hello, &template.BuildParams{
		Log: func(e api.BuildLogEntry) { log.Print(e.Message) },
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(built.Name)
}
`
)

type initOptions struct {
	IO       *cmdutil.IOStreams
	JSON     bool
	Dir      string
	Language language
}

func newCmdInit(f *cmdutil.Factory) *cobra.Command {
	opts := &initOptions{IO: f.IO, Dir: ".", Language: languageDockerfile}
	cmd := &cobra.Command{
		Use:     "init [directory]",
		Aliases: []string{"it"},
		Short:   "Write a small template to begin with",
		Long: `Write a small template to begin with, a Dockerfile or a Go program, and print its path.
A file that is there is not replaced.`,
		Example: `  e2bctl template init hello && e2bctl template build --local hello hello
  e2bctl template init hello --language go`,
		Args: cmdutil.Wants("one directory at most", cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.JSON = f.JSON()
			if len(args) == 1 {
				opts.Dir = args[0]
			}
			return initRun(cmd.Context(), opts)
		},
	}
	cmd.Flags().VarP(&opts.Language, "language", "l", "what to define it in")
	return cmd
}

func initRun(_ context.Context, opts *initOptions) error {
	name, text := "Dockerfile", dockerfile
	if opts.Language == languageGo {
		name, text = "main.go", program
	}
	if err := os.MkdirAll(opts.Dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(opts.Dir, name)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, struct {
			Path string `json:"path"`
		}{path})
	}
	_, err = fmt.Fprintln(opts.IO.Out, path)
	return err
}
