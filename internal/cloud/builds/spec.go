package builds

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
)

// Spec describes how a template is built.
type Spec struct {
	FromImage, FromTemplate string      // exactly one is set
	Auth                    *image.Auth // login for FromImage; nil: that of this machine's user
	Force                   bool        // run every step, even if its result is cached
	Stages                  []Stage
	Steps                   []Step
	Start, Ready            string // "": the commands of FromTemplate
}

// Stage is a stage of a build. Steps of the build copy files from it.
type Stage struct {
	Name      string
	FromImage string
	Steps     []Step
}

// Step is one step of a build.
type Step struct {
	Type      string
	Args      []string
	FilesHash string // of COPY and ADD: hash of the archive to copy from
	FromStage string // of COPY: name of an earlier stage to copy from, instead of FilesHash
	Force     bool   // run this and all later steps, even if their results are cached
}

// fromFlag returns the step's --from flag, which names the stage to copy from.
func (s *Step) fromFlag() string {
	if s.FromStage == "" {
		return ""
	}
	return "--from=" + clip.Text(s.FromStage, maxRepeated) + " "
}

// Check returns an error unless all stages have different names, and each step copies only from
// an earlier stage.
func (s *Spec) Check() error {
	before := map[string]bool{}
	steps := func(steps []Step) error {
		for _, step := range steps {
			if from := step.FromStage; from != "" && !before[from] {
				return fmt.Errorf("fromStage names '%s', and no stage before is called so", clip.Text(from, maxRepeated))
			}
		}
		return nil
	}
	for i, stage := range s.Stages {
		switch err := steps(stage.Steps); {
		case err != nil:
			return err
		case stage.Name == "" || before[stage.Name] || len(stage.Name) > maxRepeated:
			return fmt.Errorf("stages[%d].name must be a name that no other stage has", i)
		case stage.FromImage == "":
			return fmt.Errorf("stages[%d].fromImage is missing", i)
		}
		before[stage.Name] = true
	}
	return steps(s.Steps)
}

// All returns the steps of the template and of all stages.
func (s *Spec) All() []Step {
	all := slices.Clone(s.Steps)
	for _, stage := range s.Stages {
		all = append(all, stage.Steps...)
	}
	return all
}

// images maps images to the built-in templates that replace them. The tag of an image does not
// matter.
var images = map[string]string{"e2bdev/base": "base", "e2bdev/code-interpreter": "code-interpreter-v1"}

// ImageError reports that a build cannot begin with an image.
type ImageError struct{ Image, Why string }

func (e *ImageError) Error() string {
	why := e.Why
	if why != "" {
		why = " (" + why + ")"
	}
	return fmt.Sprintf("not supported by this local cloud: the image '%s': its engine has none%s, only e2bdev/base and e2bdev/code-interpreter are, which are its built-in templates", clip.Text(e.Image, maxRepeated), why)
}

// maxRepeated bounds the length of text that an error message repeats from a request.
const maxRepeated = 300

// builtIn returns the built-in template for an image.
func builtIn(image string) (template string, ok bool) {
	name, _, _ := strings.Cut(strings.TrimSpace(image), "@")
	name, _, _ = strings.Cut(name, ":")
	template, ok = images[strings.TrimPrefix(name, "docker.io/")]
	return template, ok
}

// key returns the cache key of the result that parts determine.
func key(parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // unreachable: all parts are texts and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
