//go:build linux

package inside

import "testing"

func TestHasPassword(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"deb http://example.com/debian stable main":   false,
		"deb http://example.com/a@b stable main":      false,
		"http://example.com\nhttps://me@example.com/": true,
		"://": false,
		"URIs: https://name:word@example.com/debian":         true,
		"deb [arch=amd64] https://token@example.com/ x main": true,
	} {
		if got := hasPassword([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
