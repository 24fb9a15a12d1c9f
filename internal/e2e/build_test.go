//go:build linux

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// buildAPI is the API of a cloud for a client that builds templates.
type buildAPI struct {
	url, key string
	cloud    *sandboxtest.Cloud // nil: a server in a process of its own
}

func buildsOf(cloud *sandboxtest.Cloud) buildAPI {
	return buildAPI{cloud.URL(), string(cloud.APIKey()), cloud}
}

func (b buildAPI) call(t *testing.T, method, path string, body, answer any) int {
	t.Helper()
	text, err := json.Marshal(body)
	must.Do(t, err)
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+path, bytes.NewReader(text))
	must.Do(t, err)
	r.Header.Set("X-Api-Key", b.key)
	resp, err := clienttest.New(t).Do(r)
	must.Do(t, err)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	must.Do(t, err)
	if answer != nil {
		if err := json.Unmarshal(got, answer); err != nil {
			t.Fatalf("%s %s: %d %s: %v", method, path, resp.StatusCode, got, err)
		}
	}
	return resp.StatusCode
}

type buildStep struct {
	Type      string   `json:"type"`
	Args      []string `json:"args"`
	FilesHash string   `json:"filesHash,omitempty"`
	Force     bool     `json:"force"`
}

type buildSpec struct {
	FromImage    string      `json:"fromImage,omitempty"`
	FromTemplate string      `json:"fromTemplate,omitempty"`
	Force        bool        `json:"force"`
	Steps        []buildStep `json:"steps"`
	StartCmd     string      `json:"startCmd,omitempty"`
	ReadyCmd     string      `json:"readyCmd,omitempty"`
}

// built is the result of a build.
type built struct {
	TemplateID, BuildID string
	Status              string
	Log                 []string // without the parts that differ each time
	Reason              *struct{ Message, Step string }
}

type buildIDs struct{ TemplateID, BuildID string }

func (b buildAPI) request(t *testing.T, name string) (ids buildIDs) {
	t.Helper()
	if status := b.call(t, "POST", "/v3/templates", map[string]any{"name": name}, &ids); status != http.StatusAccepted {
		t.Fatalf("request: got %d, want 202", status)
	}
	return ids
}

func (b buildAPI) start(t *testing.T, ids buildIDs, spec buildSpec) int {
	t.Helper()
	return b.call(t, "POST", "/v2/templates/"+ids.TemplateID+"/builds/"+ids.BuildID, spec, nil)
}

// wait reads the log to its end.
func (b buildAPI) wait(t *testing.T, ids buildIDs) built {
	t.Helper()
	result := built{TemplateID: ids.TemplateID, BuildID: ids.BuildID}
	offset := 0
	patience.Until(t, "the build "+ids.BuildID+" ends", func() bool {
		var status struct {
			Status     string
			LogEntries []struct{ Message, Level, Step string }
			Reason     *struct{ Message, Step string }
		}
		if got := b.call(t, "GET", fmt.Sprintf("/templates/%s/builds/%s/status?logsOffset=%d", ids.TemplateID, ids.BuildID, offset), nil, &status); got != http.StatusOK {
			t.Fatalf("status: got %d, want 200", got)
		}
		for _, e := range status.LogEntries {
			result.Log = append(result.Log, e.Step+" "+e.Level+" "+e.Message)
		}
		offset += len(status.LogEntries)
		result.Status, result.Reason = status.Status, status.Reason
		over := status.Status == "ready" || status.Status == "error"
		return over && len(status.LogEntries) == 0
	})
	return result
}

func (b buildAPI) build(t *testing.T, name string, spec buildSpec) built {
	t.Helper()
	ids := b.request(t, name)
	if status := b.start(t, ids, spec); status != http.StatusAccepted {
		t.Fatalf("start: got %d, want 202", status)
	}
	return b.wait(t, ids)
}

// ready is build for a build that must become ready.
func (b buildAPI) ready(t *testing.T, name string, spec buildSpec) built {
	t.Helper()
	result := b.build(t, name, spec)
	if result.Status != "ready" {
		t.Fatalf("got %s %+v, want ready; log:\n%s", result.Status, result.Reason, strings.Join(result.Log, "\n"))
	}
	return result
}

// upload puts an archive and returns its hash.
func (b buildAPI) upload(t *testing.T, template string, archive []byte) string {
	t.Helper()
	sum := sha256.Sum256(archive)
	hash := hex.EncodeToString(sum[:])
	var link struct {
		Present bool
		URL     string
	}
	if status := b.call(t, "GET", "/templates/"+template+"/files/"+hash, nil, &link); status != http.StatusCreated {
		t.Fatalf("link: got %d, want 201", status)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, link.URL, bytes.NewReader(archive))
	must.Do(t, err)
	resp, err := clienttest.New(t).Do(r)
	must.Do(t, err)
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("upload: got %d %s, want 200", resp.StatusCode, text)
	}
	return hash
}

// archiveOf packs files by their names. The content of a name with / at its end is ignored,
// and -> begins the target of a link.
func archiveOf(t *testing.T, zipped bool, files ...string) []byte {
	t.Helper()
	var buffer bytes.Buffer
	var to io.Writer = &buffer
	var zip *gzip.Writer
	if zipped {
		zip = gzip.NewWriter(&buffer)
		to = zip
	}
	w := tar.NewWriter(to)
	for i := 0; i < len(files); i += 2 {
		name, content := files[i], files[i+1]
		header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if target, link := strings.CutPrefix(content, "->"); link {
			header.Typeflag, header.Linkname, header.Size = tar.TypeSymlink, target, 0
		}
		if strings.HasSuffix(name, "/") {
			header.Typeflag, header.Mode, header.Size = tar.TypeDir, 0o755, 0
		}
		must.Do(t, w.WriteHeader(header))
		if header.Size > 0 {
			_, err := io.WriteString(w, content)
			must.Do(t, err)
		}
	}
	must.Do(t, w.Close())
	if zip != nil {
		must.Do(t, zip.Close())
	}
	return buffer.Bytes()
}

// create makes a sandbox from a template.
func (b buildAPI) create(t *testing.T, template string) *sandbox.Sandbox {
	t.Helper()
	return b.cloud.Create(t, sandbox.WithTemplate(template))
}

// TestBuild checks that the steps of a build run in sandboxes, and that a sandbox of the
// template begins with their files. A second build of the same template repeats nothing.
func TestBuild(t *testing.T) {
	t.Parallel()
	api := buildsOf(sandboxtest.New(t, local.WithWarm(0)))
	ids := api.request(t, "Job:v1")
	hash := api.upload(t, ids.TemplateID, archiveOf(t, true, "src/", "", "src/a.txt", "alpha", "src/sub/", "", "src/sub/b.txt", "beta", "src/link", "->a.txt"))
	spec := buildSpec{FromImage: "e2bdev/base:latest", Steps: []buildStep{
		{Type: "ENV", Args: []string{"GREETING", "hello", "WHERE", "${HOME}/x"}},
		{Type: "RUN", Args: []string{"echo $GREETING > /tmp/said; echo out; echo err >&2"}},
		{Type: "run", Args: []string{"id -u > /root/who", "root"}},
		{Type: "WORKDIR", Args: []string{"app/data"}},
		{Type: "COPY", Args: []string{"src", "files/", "", "0750"}, FilesHash: hash},
		{Type: "COPY", Args: []string{"src/*.txt", ".", "root", ""}, FilesHash: hash},
		{Type: "RUN", Args: []string{"cat files/sub/b.txt > there"}},
	}}
	if status := api.start(t, ids, spec); status != http.StatusAccepted {
		t.Fatalf("start: got %d, want 202", status)
	}
	first := api.wait(t, ids)
	log := strings.Join(first.Log, "\n")
	if first.Status != "ready" || first.Reason != nil {
		t.Fatalf("got %s %+v, want ready; log:\n%s", first.Status, first.Reason, log)
	}
	for _, want := range []string{
		"info Building template " + ids.TemplateID + "/" + ids.BuildID, "base info [base] FROM e2bdev/base:latest [", "built-in template base",
		"1 info [builder 1/7] ENV GREETING hello WHERE ${HOME}/x [", "2 info [builder 2/7] RUN echo", "2 info out", "2 warn err", "info Build finished, took ",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %q:\n%s", want, log)
		}
	}
	sb := api.create(t, "job:v1")
	for command, want := range map[string]string{
		"cat /tmp/said": "hello", "sudo cat /root/who": "0", "echo $GREETING $WHERE": "hello /home/user/x", "pwd": "/home/user/app/data",
		"cat there": "beta", "cat files/a.txt files/sub/b.txt": "alphabeta", "readlink files/link": "a.txt", "stat -c %a files/a.txt files/sub": "750\n750", "ls": "a.txt\nfiles\nsub\nthere",
		"ls -A /tmp | grep e2bctl || true": "",
	} {
		if got := sandboxtest.Run(t, sb, command); got != want && command != "ls" {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
	second := api.ready(t, "job:v1", spec)
	if n := strings.Count(strings.Join(second.Log, "\n"), "CACHED [builder"); n != len(spec.Steps) {
		t.Errorf("got %d steps from the cache, want all %d:\n%s", n, len(spec.Steps), strings.Join(second.Log, "\n"))
	}
	if first.TemplateID != second.TemplateID || first.BuildID == second.BuildID {
		t.Errorf("got %+v and %+v, want another build of the same template", first, second)
	}
}

// TestBuildUsers checks that sandboxes of the template run as the user and in the directory of
// the steps.
func TestBuildUsers(t *testing.T) {
	t.Parallel()
	api := buildsOf(sandboxtest.New(t, local.WithWarm(0)))
	probe := api.cloud.Create(t)
	spec := buildSpec{FromImage: "e2bdev/code-interpreter", Steps: []buildStep{
		{Type: "USER", Args: []string{"root"}},
		{Type: "WORKDIR", Args: []string{"/srv"}},
		{Type: "RUN", Args: []string{"id -un > /tmp/first; pwd >> /tmp/first"}},
		{Type: "USER", Args: []string{"alice", "true"}},
		{Type: "WORKDIR", Args: []string{"/srv/app/deep"}},
		{Type: "RUN", Args: []string{"id -un > mine; sudo id -u >> mine; echo $HOME >> mine"}},
		{Type: "ENV", Args: []string{"WHOSE", "$USER"}},
	}}
	if sandboxtest.Run(t, probe, "cut -d: -f3 /etc/passwd | head -n 2 | sort -u | wc -l") == "1" {
		result := api.build(t, "many", spec)
		if result.Status != "error" || result.Reason.Step != "4" || !strings.Contains(result.Reason.Message, "only one user id") {
			t.Errorf("got %s %+v, want the step USER to say that there is one id", result.Status, result.Reason)
		}
		return
	}
	api.ready(t, "many", spec)
	api.ready(t, "child", buildSpec{FromTemplate: "many", Steps: []buildStep{{Type: "RUN", Args: []string{"pwd > /tmp/child; id -un >> /tmp/child"}}}})
	sb := api.create(t, "child")
	for command, want := range map[string]string{
		"cat /tmp/first": "root\n/srv", "cat mine": "alice\n0\n/home/alice", "id -un; pwd": "alice\n/srv/app/deep",
		"echo $WHOSE": "alice", "stat -c %U /srv /srv/app": "root\nalice", "cat /tmp/child": "/srv/app/deep\nalice",
	} {
		if got := sandboxtest.Run(t, sb, command); got != want {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
	must.Do(t, sb.Files.WriteText(t.Context(), "note", "text", nil))
	if got := sandboxtest.Run(t, sb, "stat -c '%U %n' /home/alice/note"); got != "alice /home/alice/note" {
		t.Errorf("a file with a relative name: got %q, want it in the home of the user", got)
	}
	sandboxtest.Run(t, sb, "sudo sed -i /^alice:/d /etc/passwd")
	if status := api.call(t, "POST", "/sandboxes/"+sb.ID()+"/pause", map[string]any{"memory": false}, nil); status != http.StatusNoContent {
		t.Fatalf("pause: got %d, want 204", status)
	}
	if status := api.call(t, "POST", "/v2/sandboxes/"+sb.ID()+"/connect", struct{}{}, nil); status != http.StatusCreated {
		t.Fatalf("connect: got %d, want 201", status)
	}
	if got := sandboxtest.Run(t, sb, "id -un"); got != "user" {
		t.Errorf("after its account was removed: got %q, want user", got)
	}
}

// TestStartCommand checks that the start command of a template runs in each sandbox of it,
// however that began.
func TestStartCommand(t *testing.T) {
	t.Parallel()
	api := buildsOf(sandboxtest.New(t, local.WithWarm(0)))
	result := api.ready(t, "service", buildSpec{
		FromImage: "e2bdev/base", StartCmd: "cd served && exec python3 -u -m http.server 8000", ReadyCmd: "curl -sf localhost:8000/index.html",
		Steps: []buildStep{{Type: "RUN", Args: []string{"mkdir served; echo $GREETING > served/index.html"}}, {Type: "ENV", Args: []string{"GREETING", "hello"}}},
	})
	log := strings.Join(result.Log, "\n")
	for _, want := range []string{"finalize info Running start command: cd served", "finalize info Waiting for template to be ready: curl", "finalize info Template is ready"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %q:\n%s", want, log)
		}
	}
	check := func(sb *sandbox.Sandbox, what string) {
		t.Helper()
		if got := sandboxtest.Run(t, sb, "curl -s -o /dev/null -w '%{http_code}' localhost:8000/index.html"); got != "200" {
			t.Errorf("%s: got status %q from what it starts, want 200", what, got)
		}
		processes, err := sb.Commands.List(t.Context(), nil)
		if err != nil || len(processes) != 1 || !strings.Contains(strings.Join(processes[0].Args, " "), "http.server") {
			t.Errorf("%s: got processes %+v and error %v, want what it starts", what, processes, err)
		}
	}
	sb := api.create(t, "service")
	check(sb, "a new sandbox")
	forks, err := sb.Fork(t.Context(), nil)
	must.Do(t, err)
	for _, fork := range forks {
		must.Do(t, fork.Err)
		t.Cleanup(func() { fork.Sandbox.Close() })
		check(fork.Sandbox, "a fork")
	}
	var snapshot struct{ SnapshotID string }
	api.call(t, "POST", "/sandboxes/"+sb.ID()+"/snapshots", struct{}{}, &snapshot)
	check(api.create(t, snapshot.SnapshotID), "a sandbox of a snapshot")
	if status := api.call(t, "POST", "/sandboxes/"+sb.ID()+"/pause", map[string]any{"memory": false}, nil); status != http.StatusNoContent {
		t.Fatalf("pause: got %d, want 204", status)
	}
	if status := api.call(t, "POST", "/v2/sandboxes/"+sb.ID()+"/connect", struct{}{}, nil); status != http.StatusCreated {
		t.Fatalf("connect: got %d, want 201", status)
	}
	check(sb, "a sandbox that was paused without its memory")
}

// TestHostileArchives checks that an archive changes nothing outside of the destination of its
// files, is bounded by the sandbox's disk, and is refused if it is no archive.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	api := buildsOf(sandboxtest.New(t, local.WithWarm(0), local.WithResources(local.Resources{DiskBytes: 64 << 20})))
	device := func() []byte {
		var buffer bytes.Buffer
		w := tar.NewWriter(&buffer)
		must.Do(t, w.WriteHeader(&tar.Header{Name: "src/disk", Typeflag: tar.TypeBlock, Devmajor: 8, Mode: 0o666}))
		must.Do(t, w.Close())
		return buffer.Bytes()
	}
	bomb := func() []byte {
		var buffer bytes.Buffer
		zip := gzip.NewWriter(&buffer)
		w := tar.NewWriter(zip)
		const size = 20 << 30
		must.Do(t, w.WriteHeader(&tar.Header{Name: "src/big", Size: size, Mode: 0o600}))
		block := bytes.Repeat([]byte("x"), 1<<20) // zeros would become a hole
		for range 100 {                           // more than fits on the disk, and cut off
			_, err := w.Write(block)
			must.Do(t, err)
		}
		must.Do(t, zip.Close())
		return buffer.Bytes()
	}
	for name, tt := range map[string]struct {
		archive []byte
		source  string
		reason  string // "": it is built
	}{
		"no archive":                 {[]byte("text"), "src", "cannot be unpacked"},
		"an empty one":               {nil, "src", "cannot be unpacked"},
		"cut off":                    {archiveOf(t, true, "src/a", strings.Repeat("a", 10000))[:60], "src", "cannot be unpacked"},
		"without what is copied":     {archiveOf(t, false, "src/a", "a"), "other", "'other' is not in the archive"},
		"a source that leads out":    {archiveOf(t, false, "src/a", "a"), "../../etc", "leads out of the archive"},
		"an absolute source":         {archiveOf(t, false, "src/a", "a"), "/etc/passwd", "is not in the archive"},
		"names that lead out":        {archiveOf(t, false, "src/a", "a", "../../../etc/evil", "evil"), "src", "cannot be unpacked"},
		"absolute names":             {archiveOf(t, false, "src/a", "a", "/etc/evil", "evil"), "src", ""},
		"a file behind a link":       {archiveOf(t, false, "src/a", "a", "src/out", "->/etc", "src/out/evil", "evil"), "src", "cannot be unpacked"},
		"a source behind a link":     {archiveOf(t, false, "src", "->/etc"), "src/passwd", "is not in the archive"},
		"a link to nowhere":          {archiveOf(t, false, "src/a", "a", "src/out", "->/etc/evil"), "src", ""},
		"a device":                   {device(), "src", "cannot be unpacked"},
		"more than fits":             {bomb(), "src", "its limit is --disk of e2bctl local up"},
		"names that look like flags": {archiveOf(t, false, "src/", "", "src/-a", "a", "src/--help", "a", "src/a\nb", "a"), "src", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ids := api.request(t, "hostile-"+strings.ReplaceAll(name, " ", "-"))
			hash := api.upload(t, ids.TemplateID, tt.archive)
			api.start(t, ids, buildSpec{FromImage: "e2bdev/base", Steps: []buildStep{
				{Type: "COPY", Args: []string{tt.source, "to/", "", ""}, FilesHash: hash},
				{Type: "RUN", Args: []string{"test ! -e /etc/evil && test -e to/a -o -e to/-a && test ! -e src"}},
			}})
			result := api.wait(t, ids)
			if tt.reason == "" {
				if result.Status != "ready" {
					t.Errorf("got %s %+v, want ready:\n%s", result.Status, result.Reason, strings.Join(result.Log, "\n"))
				}
				return
			}
			if result.Status != "error" || result.Reason.Step != "1" || !strings.Contains(result.Reason.Message, tt.reason) {
				t.Errorf("got %s %+v, want the first step to fail with %q:\n%s", result.Status, result.Reason, tt.reason, strings.Join(result.Log, "\n"))
			}
		})
	}
}

// TestCopy checks that files are copied to the same places as by a Dockerfile.
func TestCopy(t *testing.T) {
	t.Parallel()
	api := buildsOf(sandboxtest.New(t, local.WithWarm(0)))
	ids := api.request(t, "copies")
	hash := api.upload(t, ids.TemplateID, archiveOf(t, true, "one.txt", "one", "dir/", "", "dir/two.txt", "two", "dir/.hidden", "h", "dir/sub/", "", "dir/sub/three.txt", "three"))
	step := func(source, destination, owner, mode string) buildStep {
		return buildStep{Type: "COPY", Args: []string{source, destination, owner, mode}, FilesHash: hash}
	}
	api.start(t, ids, buildSpec{FromImage: "e2bdev/base", Steps: []buildStep{
		{Type: "RUN", Args: []string{"mkdir -p there/sub; echo old > there/two.txt; echo kept > there/sub/kept"}},
		{Type: "ENV", Args: []string{"WHERE", "there"}},
		step("one.txt", "renamed.txt", "", ""), step("one.txt", "made/deep/", "", ""), step("one.txt", "/opt/one", "root", "0750"), step("one.txt", "there", "", ""),
		step("dir", "$WHERE", "", ""), step("dir/*.txt", "matched", "", ""), step("./dir/sub/", "slash", "user:root", ""),
	}})
	result := api.wait(t, ids)
	if result.Status != "ready" {
		t.Fatalf("got %s %+v, want ready:\n%s", result.Status, result.Reason, strings.Join(result.Log, "\n"))
	}
	sb := api.create(t, "copies")
	for command, want := range map[string]string{
		"sudo cat renamed.txt made/deep/one.txt /opt/one there/one.txt": "oneoneoneone", "stat -c '%a %U' /opt/one": "750 root",
		"cat there/two.txt there/sub/three.txt there/sub/kept there/.hidden": "twothreekept\nh", "ls -A matched": ".hidden\nsub\ntwo.txt", "ls slash": "three.txt",
		"stat -c %U there/sub made made/deep there/two.txt | sort -u": "user",
	} {
		if sandboxtest.Run(t, sb, "id -u root") == sandboxtest.Run(t, sb, "id -u user") && strings.Contains(command, "%U") {
			continue
		}
		if got := sandboxtest.Run(t, sb, command); got != want {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
}

// TestManySteps checks that a template of many steps has all files that they wrote and none
// that they removed, regardless of the number of layers.
func TestManySteps(t *testing.T) {
	t.Parallel()
	api := buildsOf(sandboxtest.New(t, local.WithWarm(0)))
	spec := buildSpec{FromImage: "e2bdev/base"}
	var want strings.Builder
	for i := range 20 {
		spec.Steps = append(spec.Steps, buildStep{Type: "RUN", Args: []string{fmt.Sprintf("mkdir -p d%d && echo %d >> all && touch d%d/f && rm -rf d%d", i, i, i, i-1)}})
		fmt.Fprintln(&want, i)
	}
	api.ready(t, "many-steps", spec)
	sb := api.create(t, "many-steps")
	if got := sandboxtest.Run(t, sb, "cat all; ls -d d*"); got != want.String()+"d19" {
		t.Errorf("got %q, want each step once and the last directory", got)
	}
	if got := sandboxtest.Run(t, sb, "echo more >> all; sudo touch /etc/mine; tail -n 1 all"); got != "more" {
		t.Errorf("got %q, want it to be writable", got)
	}
}

// TestKilledDuringBuild checks that a build is ready or has failed after a restart, whenever
// the server is killed, and that building it again has the right result.
func TestKilledDuringBuild(t *testing.T) {
	t.Parallel()
	rounds := 2
	if os.Getenv("SOAK") != "" {
		rounds = 50
	}
	state := filepath.Join(t.TempDir(), "state")
	spec := buildSpec{FromImage: "e2bdev/base", Force: true, ReadyCmd: "true"}
	for i := range 5 {
		spec.Steps = append(spec.Steps, buildStep{Type: "RUN", Args: []string{fmt.Sprintf("head -c 1000000 /dev/urandom > file%d; sha256sum file%d >> sums", i, i)}})
	}
	for range rounds {
		before := startServer(t, stateVariable+"="+state)
		api := buildAPI{url: before.url, key: string(before.key)}
		ids := api.request(t, "job")
		api.start(t, ids, spec)
		select { // at an unknown moment
		case <-time.After(time.Duration(rand.Int64N(int64(time.Second)))):
		case <-t.Context().Done():
		}
		before.kill(t)

		after := startServer(t, stateVariable+"="+state)
		api = buildAPI{url: after.url, key: string(after.key)}
		switch left := api.wait(t, ids); {
		case left.Status == "ready":
		case left.Status != "error" || !strings.Contains(left.Reason.Message, "ended during the build"):
			t.Errorf("got %s %+v, want it to be ready, or to have failed because the server ended", left.Status, left.Reason)
		}
		api.ready(t, "job", spec)
		sb, err := sandbox.Create(t.Context(), after.option(), sandbox.WithTemplate("job"))
		must.Do(t, err)
		if got := sandboxtest.Run(t, sb, "sha256sum -c sums | grep -c OK"); got != "5" {
			t.Errorf("got %q files that are as they were written, want 5", got)
		}
		if err := sb.Kill(t.Context()); err != nil {
			t.Error(err)
		}
		_ = sb.Close()
		after.stop(t)
	}
}
