package template

import (
	"errors"
	"strings"
	"testing"
)

// TestPlatform checks that a FROM may name the platform of the service's images, in any way
// that Docker knows, and that another one is an error with its line before anything is built.
func TestPlatform(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, has, want string }{
		{text: "FROM --platform=linux/amd64 x"},
		{text: "FROM --platform=linux/amd64 x", has: "amd64"},
		{text: "FROM --platform=linux x", has: "arm64"},
		{text: "FROM --platform=x86_64 x", has: "amd64"},
		{text: "FROM --platform=Linux/arm64/v8 x", has: "arm64"},
		{text: "FROM --platform=aarch64 x", has: "arm64"},
		{text: "FROM --platform=$BUILDPLATFORM x", has: "arm64"},
		{text: "FROM --platform=linux/${TARGETARCH} x", has: "arm64"},
		{text: "ARG P=linux/amd64\nFROM --platform=$P x", has: "amd64"},
		{text: "FROM --platform=linux/arm64 a AS left-out\nFROM x", has: "amd64"},
		{text: "FROM x\nRUN y\nFROM --platform=linux/arm64 x", want: "Dockerfile, line 3: --platform=linux/arm64 of FROM: unsupported operation by this service, whose images are for linux/amd64"},
		{text: "FROM --platform=linux/amd64 x", has: "arm64", want: "line 1: --platform=linux/amd64 of FROM"},
		{text: "ARG P=linux/arm/v7\nFROM --platform=$P x", has: "arm64", want: "line 2: --platform=linux/arm/v7 of FROM"},
		{text: "FROM --platform=linux/arm64 x AS a\nFROM a\nRUN y", has: "amd64", want: "line 1: --platform=linux/arm64 of FROM"},
		{text: "FROM --platform=linux/arm64 x AS a\nFROM y\nCOPY --from=a /b /c", has: "amd64", want: "line 1: --platform=linux/arm64 of FROM"},
	} {
		f := &fake{stages: c.has != "", has: map[string]bool{}, architecture: c.has}
		_, err := Start(t.Context(), f.templates(t), "name", FromDockerfile(strings.NewReader(c.text), nil), nil)
		if c.want == "" && err != nil {
			t.Errorf("%q for %s: got %v", c.text, c.has, err)
		}
		if c.want != "" && (!errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q for %s: got %v, want %q", c.text, c.has, err, c.want)
		}
		if c.want != "" && len(f.asked) > 0 {
			t.Errorf("%q for %s: got the calls %v, want none", c.text, c.has, f.asked)
		}
	}
	for text, want := range map[string]string{
		"FROM --platform=windows/amd64 x": "line 1: --platform=windows/amd64 of FROM: sandboxes run Linux only",
		"FROM y\nFROM --platform=$P x":    "line 2: --platform=$P of FROM is not known: an ARG before FROM must have a value",
	} {
		if _, err := Start(t.Context(), (&fake{}).templates(t), "name", FromDockerfile(strings.NewReader(text), nil), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
