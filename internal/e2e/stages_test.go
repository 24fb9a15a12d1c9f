//go:build linux

package e2e

import (
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// TestStages checks that a Dockerfile with several stages has the files that the last one
// copies, with their owners, modes and links, and no others of the earlier stages; ADD
// unpacks.
func TestStages(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	b.write(t, "main.txt", "main\n", 0o644)
	b.write(t, "site.tar.gz", string(archiveOf(t, true, "site/", "", "site/index", "index\n", "site/link", "->index")), 0o644)
	dockerfile := `
FROM e2bdev/base AS base
ENV WHO=base
FROM base AS build
COPY main.txt /src/
RUN mkdir -p /out/deep && cat /src/main.txt >/out/app && chmod 4755 /out/app && ln /out/app /out/deep/again && ln -s app /out/link && chown user:user /out/deep
FROM e2bdev/base AS unused
RUN exit 3
FROM base
COPY --from=build /out /opt/out
COPY --from=build --chown=user --chmod=600 /out/app /out/link /opt/files/
COPY --from=0 /etc/hostname /opt/renamed
ADD site.tar.gz $HOME/
RUN test ! -e /src && test ! -e /out && echo $WHO >/opt/who
`
	build := func(text string) (string, error) {
		d := template.FromDockerfile(strings.NewReader(text), nil)
		built, err := b.build(t, "staged", d)
		if err != nil {
			return "", err
		}
		return built.Name, nil
	}
	name, err := build(dockerfile)
	must.Do(t, err)
	if !b.said("[build 1/5]") || b.said("unused") {
		t.Errorf("got the log %q, want the stage that is needed and not the other", b.log)
	}
	got := b.run(t, name, `pwd; cd /opt; cat out/app out/link files/app files/link who /root/site/link 2>/dev/null || sudo cat /root/site/link; ls out; stat -c %a out/app files/app; `+
		`[ "$(stat -c %i out/app)" = "$(stat -c %i out/deep/again)" ] && echo one; readlink out/link; whoami`)
	if want := "/home/user\nmain\nmain\nmain\nmain\nbase\nindex\napp\ndeep\nlink\n4755\n600\none\napp\nuser\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if ids := b.run(t, name, "id -u root; id -u user"); ids != "0\n0\n" {
		if got, want := b.run(t, name, "stat -c %U /opt/out/app /opt/out/deep /opt/files/app"), "root\nuser\nuser\n"; got != want {
			t.Errorf("owners: got %q, want %q", got, want)
		}
	}
	if _, err := build(dockerfile); err != nil || !b.said("CACHED [build 5/5]") {
		t.Errorf("the second time: error %v, log %q", err, b.log)
	}
	for _, line := range b.log {
		if strings.HasPrefix(line, "[build ") || strings.HasPrefix(line, "[builder ") {
			t.Errorf("the second time %q is not from the cache", line)
		}
	}
	for text, want := range map[string]string{
		"FROM e2bdev/base AS a\nRUN exit 3\nFROM e2bdev/base\nCOPY --from=a /x /y":                  "step a/3 (RUN exit 3)",
		"FROM e2bdev/base AS a\nFROM e2bdev/base\nCOPY --from=a /missing /y":                        "step 3 (COPY --from=a /missing /y): COPY --from=a /missing: '/missing' is not there",
		"FROM e2bdev/base AS a\nFROM e2bdev/base\nCOPY --from=a /etc/host* /y":                      "must be a directory, or end in /",
		"FROM e2bdev/base\nCOPY --from=missing.example/none /x /y":                                  "missing.example/none",
		"FROM e2bdev/base AS a\nFROM e2bdev/base\nCOPY --from=a --chown=nobody-here /etc/passwd /y": "unknown user nobody-here",
	} {
		if _, err := build(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
