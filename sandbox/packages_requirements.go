package sandbox

import (
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/pip"
)

// RequirementError reports a requirement, or a line of a [LockFile], that is refused before any
// request is sent. It matches [ErrInvalidArgument].
type RequirementError struct {
	// Requirement is the refused text.
	Requirement string
	// Reason is the reason for the refusal, with the text to use instead.
	Reason string
	// Import reports that the requirement names a module, such as "json" or "numpy.*", instead
	// of a package.
	Import bool
}

func (e *RequirementError) Error() string {
	return fmt.Sprintf("sandbox: requirement %q: %s", clip.Text(e.Requirement, 128), e.Reason)
}

// Is reports whether target is [ErrInvalidArgument].
func (e *RequirementError) Is(target error) bool { return target == api.ErrInvalidArgument }

// requirementError converts an error of package pip to an error of this package.
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
