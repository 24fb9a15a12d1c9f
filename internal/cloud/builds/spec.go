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

// Spec is the recipe of a template.
type Spec struct {
	FromImage, FromTemplate string      // exactly one
	Auth                    *image.Auth // for FromImage; nil: this machine's user's login
	Force                   bool        // run every step
	Stages                  []Stage
	Steps                   []Step
	Start, Ready            string // "": those of the template that it is from
}

// Stage is a stage that steps copy from.
type Stage struct {
	Name      string
	FromImage string
	Steps     []Step
}

// Step is one step of a build.
type Step struct {
	Type      string
	Args      []string
	FilesHash string // of COPY and ADD
	FromStage string // of COPY: the name of an earlier stage, in place of FilesHash
	Force     bool   // run it and all later steps
}

// from returns the flag with the stage that a step copies from.
func (s *Step) from() string {
	if s.FromStage == "" {
		return ""
	}
	return "--from=" + clip.Text(s.FromStage, maxRepeated) + " "
}

// Check returns an error unless stages have different names, and steps copy from earlier
// stages.
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

// images are the images that are built-in templates, with any tag.
var images = map[string]string{"e2bdev/base": "base", "e2bdev/code-interpreter": "code-interpreter-v1"}

// ImageError means that a build cannot begin with an image.
type ImageError struct{ Image, Why string }

func (e *ImageError) Error() string {
	why := e.Why
	if why != "" {
		why = " (" + why + ")"
	}
	return fmt.Sprintf("not supported by this local cloud: the image '%s': its engine has none%s, only e2bdev/base and e2bdev/code-interpreter are, which are its built-in templates", clip.Text(e.Image, maxRepeated), why)
}

// maxRepeated bounds the part of a request that a message repeats.
const maxRepeated = 300

// builtIn returns the built-in template of an image.
func builtIn(image string) (template string, ok bool) {
	name, _, _ := strings.Cut(strings.TrimSpace(image), "@")
	name, _, _ = strings.Cut(name, ":")
	template, ok = images[strings.TrimPrefix(name, "docker.io/")]
	return template, ok
}

// key returns the cache's name for the result of parts.
func key(parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // all parts are texts and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
