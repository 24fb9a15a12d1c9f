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

// Spec says what to build.
type Spec struct {
	FromImage, FromTemplate string      // exactly one
	Auth                    *image.Auth // for FromImage; nil: as this machine's user does
	Force                   bool        // run every step
	Stages                  []Stage
	Steps                   []Step
	Start, Ready            string // "": as the template it is from
}

// Stage is what steps copy from.
type Stage struct {
	Name      string
	FromImage string
	Steps     []Step
}

// Step is one step.
type Step struct {
	Type      string
	Args      []string
	FilesHash string // of COPY and ADD
	FromStage string // of COPY: the name of a stage before, in place of FilesHash
	Force     bool   // run it and all that follow
}

// from returns the flag that says which stage a step copies from.
func (s *Step) from() string {
	if s.FromStage == "" {
		return ""
	}
	return "--from=" + clip.Text(s.FromStage, maxRepeated) + " "
}

// Check returns an error unless stages have names of their own, and steps copy from those
// before.
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

// images are the images that are built-in templates, whatever their tag is.
var images = map[string]string{"e2bdev/base": "base", "e2bdev/code-interpreter": "code-interpreter-v1"}

// ImageError means that a build cannot begin with images.
type ImageError struct{ Image, Why string }

func (e *ImageError) Error() string {
	why := e.Why
	if why != "" {
		why = " (" + why + ")"
	}
	return fmt.Sprintf("not supported by this local cloud: the image '%s': its engine has none%s, only e2bdev/base and e2bdev/code-interpreter are, which are its built-in templates", clip.Text(e.Image, maxRepeated), why)
}

// maxRepeated bounds what a message repeats of what was asked for.
const maxRepeated = 300

// builtIn returns the built-in template that an image is.
func builtIn(image string) (template string, ok bool) {
	name, _, _ := strings.Cut(strings.TrimSpace(image), "@")
	name, _, _ = strings.Cut(name, ":")
	template, ok = images[strings.TrimPrefix(name, "docker.io/")]
	return template, ok
}

// key returns the name under which the cache knows what parts led to.
func key(parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // only texts and numbers are passed here
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
