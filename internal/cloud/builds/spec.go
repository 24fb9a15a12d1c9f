package builds

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// Spec says what to build.
type Spec struct {
	FromImage, FromTemplate string // exactly one
	Force                   bool   // run every step
	Steps                   []Step
	Start, Ready            string // "": as the template it is from
}

// Step is one step.
type Step struct {
	Type      string
	Args      []string
	FilesHash string // of COPY and ADD
	Force     bool   // run it and all that follow
}

// images are the images that are built-in templates, whatever their tag is.
var images = map[string]string{"e2bdev/base": "base", "e2bdev/code-interpreter": "code-interpreter-v1"}

// ImageError means that an image cannot be built from.
type ImageError struct{ Image string }

func (e *ImageError) Error() string {
	return fmt.Sprintf("not supported by this local cloud: the image '%s'; only e2bdev/base and e2bdev/code-interpreter are, which are its built-in templates: "+
		"other images come with container engines", clip.Text(e.Image, maxRepeated))
}

// maxRepeated bounds what a message repeats of what was asked for.
const maxRepeated = 300

// CheckImage returns an [*ImageError] if an image is no built-in template.
func CheckImage(image string) error {
	if _, ok := builtIn(image); !ok {
		return &ImageError{image}
	}
	return nil
}

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
