package sandbox

import "github.com/e2bctl/e2bctl/internal/clip"

// DefaultMaxOutput is how many bytes of a stream are kept in a result unless
// the call says otherwise.
const DefaultMaxOutput = 1 << 20

// newOutput keeps limit bytes of a stream: 0 means [DefaultMaxOutput], less means
// none.
func newOutput(limit int) *clip.Output {
	if limit == 0 {
		limit = DefaultMaxOutput
	}
	return clip.NewOutput(limit)
}
