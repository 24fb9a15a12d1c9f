package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/e2bctl/e2bctl/api"
)

// platform is the platform that a FROM requires.
type platform struct {
	line         int
	text         string
	architecture string
}

// platform parses --platform of FROM. It returns no platform to check if there is no value, or if
// the value is $TARGETPLATFORM or $BUILDPLATFORM, which mean the platform of the service.
func (c *conversion) platform(n *parser.Node, text string) ([]platform, error) {
	text, err := c.resolved(text)
	if err != nil {
		return nil, err
	}
	own, unknown := text == "", false
	os.Expand(text, func(name string) string {
		if platformArg().MatchString(name) {
			own = true
		} else {
			unknown = true
		}
		return ""
	})
	if unknown {
		return nil, fmt.Errorf("--platform=%s of FROM is not known: an ARG before FROM must have a value", text)
	}
	if own {
		return nil, nil
	}
	system, architecture, both := strings.Cut(strings.ToLower(text), "/")
	if !both && system != "linux" {
		system, architecture = "linux", system
	}
	if system != "linux" {
		return nil, fmt.Errorf("--platform=%s of FROM: sandboxes run Linux only", text)
	}
	architecture, _, _ = strings.Cut(architecture, "/") // images of all variants can run the same programs
	switch architecture {
	case "":
		return nil, nil
	case "x86_64", "x86-64":
		architecture = "amd64"
	case "aarch64":
		architecture = "arm64"
	}
	return []platform{{n.StartLine, text, architecture}}, nil
}

// checkPlatforms returns an error if the service's images do not have the platforms that the
// Dockerfile requires.
func checkPlatforms(ctx context.Context, templates *api.TemplateService, wanted []platform) error {
	if len(wanted) == 0 {
		return nil
	}
	has, err := templates.Architecture(ctx)
	if err != nil {
		return err
	}
	for _, p := range wanted {
		if p.architecture != has {
			return fmt.Errorf("the Dockerfile, line %d: --platform=%s of FROM: %w by this service, whose images are for linux/%s: leave it out for those, or build where they are for linux/%s",
				p.line, p.text, errors.ErrUnsupported, has, p.architecture)
		}
	}
	return nil
}
