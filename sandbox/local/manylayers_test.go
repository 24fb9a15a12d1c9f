//go:build linux

package local_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// TestManyLayers builds a template with more steps than a sandbox stands on layers: these become
// one, in which two names of one file still are that. How many names the file has is another
// matter, which the documentation of templates tells.
func TestManyLayers(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() { _ = client.Close() })
	text := new(strings.Builder)
	text.WriteString("FROM e2bdev/base\nUSER root\nRUN mkdir /opt/out && echo one >/opt/out/a && ln /opt/out/a /opt/out/b\n")
	for i := range 30 {
		fmt.Fprintf(text, "RUN echo %d >>/opt/out/more\n", i)
	}
	if _, err := template.Build(t.Context(), client.Templates, "many", template.FromDockerfile(strings.NewReader(text.String()), nil), nil); err != nil {
		t.Fatal(err)
	}
	sb := cloud.Create(t, sandbox.WithTemplate("many"))
	if got := output(t, sb, "root", "cd /opt/out; [ a -ef b ] && wc -l <more; cat b"); got != "30\none" {
		t.Errorf("got %q, want two names of one file, and what each step wrote", got)
	}
}
