//go:build !linux

package local

import (
	"context"
	"fmt"
)

func start(context.Context, settings) (service, error) {
	return nil, fmt.Errorf("local: %w", ErrUnsupported)
}
