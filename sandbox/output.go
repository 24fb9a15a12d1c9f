package sandbox

import (
	"math"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// DefaultMaxOutputBytes is the default limit of the bytes of a stream that a result keeps.
const DefaultMaxOutputBytes = 1 << 20

// newOutput returns an output that keeps limit bytes of a stream. 0 means
// [DefaultMaxOutputBytes]; with a negative limit the output keeps no bytes.
func newOutput(limit int64) *clip.Output {
	if limit == 0 {
		limit = DefaultMaxOutputBytes
	}
	return clip.NewOutput(int(min(limit, math.MaxInt)))
}
