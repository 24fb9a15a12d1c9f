package sandbox

import (
	"math"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// DefaultMaxOutputBytes limits the bytes of a stream that a result keeps, unless the call
// sets another limit.
const DefaultMaxOutputBytes = 1 << 20

// newOutput keeps limit bytes of a stream: 0 means [DefaultMaxOutputBytes], a negative
// limit keeps none.
func newOutput(limit int64) *clip.Output {
	if limit == 0 {
		limit = DefaultMaxOutputBytes
	}
	return clip.NewOutput(int(min(limit, math.MaxInt)))
}
