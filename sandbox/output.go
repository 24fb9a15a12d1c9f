package sandbox

import "github.com/e2bctl/e2bctl/internal/clip"

// DefaultMaxOutput is how many bytes of a stream a result keeps unless the call
// sets another limit.
const DefaultMaxOutput = 1 << 20

// newOutput keeps limit bytes of a stream: 0 means [DefaultMaxOutput], a negative
// limit keeps none.
func newOutput(limit int) *clip.Output {
	if limit == 0 {
		limit = DefaultMaxOutput
	}
	return clip.NewOutput(limit)
}
