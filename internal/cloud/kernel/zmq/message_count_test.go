//go:build linux

package zmq

import (
	"fmt"
	"strings"
	"testing"
)

func TestMessageCount(t *testing.T) {
	t.Parallel()
	for ids, want := range map[string]int{
		"": 0, "a_5": 0, "a_5 a_6 a_7": 0, "a_7 a_5 a_6": 0, "a_5 a_8": 2, "a_5 b_1 a_6 b_3": 1, "x y -1 a_ a_x": 0, "a_1 a_3 a_2": 0,
	} {
		c := messageCount{}
		for _, id := range strings.Fields(ids) {
			c.note(id)
		}
		if got := c.lost(); got != want {
			t.Errorf("%q: %d are lost, want %d", ids, got, want)
		}
	}
	c := messageCount{}
	for i := range 100 {
		c.note(fmt.Sprintf("p%d_1", i))
	}
	if len(c) > maxNumberings {
		t.Errorf("%d numberings are kept, want at most %v", len(c), maxNumberings)
	}
}
