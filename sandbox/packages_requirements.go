package sandbox

import (
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/pip"
)

// RequirementError is a requirement, or a line of a [LockFile], that is refused
// before anything is sent. It matches [ErrInvalidArgument].
type RequirementError struct {
	// Requirement is the text that was refused.
	Requirement string
	// Reason is the reason for the refusal, and the text to write instead.
	Reason string
	// Import reports that the requirement names something to import, such as "json" or
	// "numpy.*", and not a package.
	Import bool
}

func (e *RequirementError) Error() string {
	return fmt.Sprintf("sandbox: requirement %q: %s", clip.Text(e.Requirement, 128), e.Reason)
}

// Is matches [ErrInvalidArgument].
func (e *RequirementError) Is(target error) bool { return target == api.ErrInvalidArgument }

// requirementError turns an error of package pip into one of this package.
func requirementError(err error) error {
	if refused, ok := errors.AsType[*pip.RefusedError](err); ok {
		return (*RequirementError)(refused)
	}
	return err
}

func parseRequirements(texts []string) ([]pip.Requirement, error) {
	parsed, err := pip.ParseAll(texts)
	return parsed, requirementError(err)
}
