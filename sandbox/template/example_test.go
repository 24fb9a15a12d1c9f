package template_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

func ExampleBuild() {
	client, err := api.NewClient(api.FromEnv())
	if err != nil {
		log.Print(err)
		return
	}
	defer client.Close()
	web := template.FromBase().
		Copy("requirements.txt", "/tmp/", nil). // before the rest, which changes more often
		Pip([]string{"-r", "/tmp/requirements.txt"}, nil).
		Workdir("/srv/app").
		Copy("app", ".", nil).
		Start("exec python3 server.py", template.WaitPort(8000))
	built, err := template.Build(context.Background(), client.Templates, "web:v1", web, &template.BuildParams{
		Tags: []string{"stable"},
		Log:  func(e api.BuildLogEntry) { fmt.Println(e.Level, e.Message) },
	})
	if failed, ok := errors.AsType[*template.BuildError](err); ok {
		log.Printf("step %s, %s: %s", failed.Step, failed.Instruction, failed.Reason)
		return
	}
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println("sandboxes are made from", built.Name)
}

func ExampleFromDockerfile() {
	file, err := os.Open("Dockerfile")
	if err != nil {
		log.Print(err)
		return
	}
	defer file.Close()
	tools := template.FromDockerfile(file, &template.DockerfileParams{Args: map[string]string{"VERSION": "7"}}).
		Ready(template.WaitFor(time.Second)) // in place of 20 seconds
	for _, warning := range tools.Warnings() {
		log.Print(warning)
	}
}
