package clip_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/clip"
)

func TestOutput(t *testing.T) {
	t.Parallel()
	for limit := range 12 {
		for range 200 {
			c := clip.NewOutput(max(limit*2, 1)) // 1 keeps nothing, as half a byte cannot be kept
			var all []byte
			for range rand.IntN(6) {
				part := []byte(strings.Repeat("abcdefghijklmnopqrstuvwxyz", 2)[:rand.IntN(30)])
				all = append(all, part...)
				c.Write(part)
			}
			half := limit
			if limit == 0 {
				half = 0
			}
			want, dropped := string(all), len(all)-2*half
			if dropped > 0 {
				want = string(all[:half]) + fmt.Sprintf("\n[%d bytes dropped]\n", dropped) + string(all[len(all)-half:])
			}
			if got := c.Text(); got != want || c.Dropped() != int64(max(dropped, 0)) {
				t.Fatalf("limit %d of %q: %q, dropped %d, want %q, dropped %d", 2*half, all, got, c.Dropped(), want, max(dropped, 0))
			}
		}
	}
}

func TestOutputDoesNotSplitCharacters(t *testing.T) {
	t.Parallel()
	for limit := 2; limit < 40; limit += 2 {
		c := clip.NewOutput(limit)
		c.Write([]byte(strings.Repeat("aé€😀", 20)))
		if text := c.Text(); strings.Contains(text, "\uFFFD") {
			t.Errorf("limit %d: %q", limit, text)
		}
	}
	c := clip.NewOutput(8)
	c.Write([]byte("a\xffb"))
	if c.Text() != "a\uFFFDb" {
		t.Errorf("got %q, want %q", c.Text(), "a\uFFFDb")
	}
}
