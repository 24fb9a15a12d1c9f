//go:build linux

package cloud

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/imagetest"
	"github.com/e2bctl/e2bctl/internal/cloud/envdclient"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// imageCloud is a cloud whose sandboxes have images.
type imageCloud struct {
	*Cloud
	ids   uint32
	count int
}

func startImages(t *testing.T) *imageCloud {
	t.Helper()
	c, err := Start(t.Context(), Options{Dir: t.TempDir(), Isolation: engine.Full, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if errors.Is(err, engine.ErrNoIsolation) && os.Getenv("CI") != "true" {
		t.Skipf("this machine does not give it: %v", err)
	}
	must.Do(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return &imageCloud{Cloud: c, ids: c.Report().IDs}
}

// launchImage starts a sandbox of an image with these layers.
func (c *imageCloud) launchImage(t *testing.T, layers []string, change func(*lifecycle.Spec)) (*reachable, error) {
	t.Helper()
	rules, err := network.ParseRules(true, nil, nil)
	must.Do(t, err)
	c.count++
	spec := lifecycle.Spec{
		ID: "image" + string(rune('a'+c.count)), Layers: layers, Egress: rules, Template: lifecycle.Template{ID: "test", Image: &engine.Image{Reference: "localhost/test:1"}},
		Envs: map[string]string{"PATH": "/opt/bin:/bin", "OF": "the image"},
	}
	if change != nil {
		change(&spec)
	}
	r, err := c.launch(t.Context(), spec)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r.(*reachable), nil
}

// output runs a command and returns its whole output.
func output(t *testing.T, r *reachable, command envdclient.Command) (string, error) {
	t.Helper()
	client := envdclient.New(r.Dial, "")
	defer client.Close()
	var out strings.Builder
	command.Stdout, command.Stderr = &out, &out
	err := client.Run(t.Context(), command)
	return out.String(), err
}

// runCode runs code in the default context, and returns the lines of the answer.
func runCode(t *testing.T, r *reachable, code string) string {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return r.Dial(ctx, protocol.PortInterpreter)
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sandbox/execute", strings.NewReader(`{"code":"`+code+`"}`))
	must.Do(t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := transport.RoundTrip(req)
	must.Do(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must.Do(t, err)
	return string(body)
}

// writeFiles writes files below root, by path.
func writeFiles(root string, files map[string]string) (err error) {
	for path, text := range files {
		to := filepath.Join(root, path)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(text), 0o755))
	}
	return err
}

// TestImageCommands checks that commands run with the shell, the PATH, the environment and
// the accounts of an image without bash, and that code reports the missing Python, until
// there is one.
func TestImageCommands(t *testing.T) {
	t.Parallel()
	c := startImages(t)
	base := imagetest.Layer(t, c.ids, true, func(root string) error {
		return errors.Join(imagetest.Busybox(t, root), writeFiles(root, map[string]string{
			"etc/profile": "PATH=/nowhere\nfor i in /etc/profile.d/*.sh; do . $i; done\n", "opt/bin/tool": "#!/bin/sh\necho tool of $OF\n",
			"etc/passwd": "root:x:0:0::/root:/bin/sh\napp:x:500:600::/srv/app:/bin/sh\n", "etc/group": "root:x:0:\nstaff:x:700:app\n", "srv/app/file": "",
		}))
	})
	r, err := c.launchImage(t, []string{base}, func(s *lifecycle.Spec) { s.Template.Workdir = "/srv/made" })
	must.Do(t, err)
	for _, tt := range []struct {
		command envdclient.Command
		want    string
	}{
		{envdclient.Shell("tool; echo $0 $PATH; pwd; id -un; echo $HOME"), "tool of the image\nsh /opt/bin:/bin\n/srv/made\nuser\n/home/user\n"},
		{envdclient.Command{Args: []string{"/bin/bash", "-l", "-c", "echo $PATH"}, Envs: map[string]string{"PATH": "/mine:/bin"}}, "/mine:/bin\n"},
		{envdclient.Command{Args: []string{"tool"}}, "tool of the image\n"},
		{envdclient.Command{Args: []string{"/bin/bash", "-l", "-c", `echo "$@"`, "x", "an argument"}}, "an argument\n"},
		{envdclient.Command{Args: []string{"sh", "-c", "env | grep -c -i python; cat /.e2b"}}, "0\nENV_ID=test\nTEMPLATE_ID=test\n"},
	} {
		if got, err := output(t, r, tt.command); err != nil && got != tt.want || got != tt.want {
			t.Errorf("%q: got %q, %v, want %q", tt.command.Args, got, err, tt.want)
		}
	}
	if got := runCode(t, r, "2+2"); !strings.Contains(got, "KernelStartError") || !strings.Contains(got, "the image of this sandbox has none in its PATH: install Python 3.9") {
		t.Errorf("code without Python: got %s, want an error that names it", got)
	}
	if err := r.Pause(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.Resume(t.Context()); err != nil {
		t.Error(err)
	}
	if got, err := output(t, r, envdclient.Shell("cat /etc/hostname")); got != r.id+"\n" || err != nil {
		t.Errorf("after a pause: got %q, %v, want %q", got, err, r.id)
	}
	c.testUsers(t, r, base)
}

// testUsers checks sandboxes with each form in which an image can name the user of its programs.
func (c *imageCloud) testUsers(t *testing.T, r *reachable, base string) {
	t.Helper()
	identify := envdclient.Shell("echo $(id -u):$(id -g):$(id -G) $HOME")
	for user, want := range map[string]string{
		"root": "0:0:0 /root", "0": "0:0:0 /root", "user": "1000:1000:1000 /home/user", "1000": "1000:1000:1000 /home/user", "app": "500:600:600 700 /srv/app", "500": "500:600:600 700 /srv/app",
		"app:staff": "500:700:700 /srv/app", "500:700": "500:700:700 /srv/app", "4000:4001": "4000:4001:4001 /", "4000": "4000:0:0 /", "root:staff": "0:700:700 /root",
	} {
		identify.User, identify.Dir = user, "/"
		got, err := output(t, r, identify)
		switch {
		case c.ids > 1:
			if got != want+"\n" || err != nil {
				t.Errorf("as %s: got %q, %v, want %q", user, got, err, want)
			}
		case user == "root" || user == "user" || user == "0":
			if !strings.HasPrefix(got, "0:0:0 /") || err != nil {
				t.Errorf("as %s: got %q, %v, want the only id", user, got, err)
			}
		case err == nil || !strings.Contains(err.Error(), "start the local cloud as root"):
			t.Errorf("as %s: got %q, %v, want an error that says what to do", user, got, err)
		}
	}
	for user, want := range map[string]string{"nobody-here": "invalid username", "app:nowhere": "invalid username", "70000": "such an id"} {
		identify.User = user
		if got, err := output(t, r, identify); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("as %s: got %q, %v, want an error with %q", user, got, err, want)
		}
	}
	as, err := c.launchImage(t, []string{base}, func(s *lifecycle.Spec) { s.Template.User = "app:staff" })
	if c.ids == 1 {
		if err == nil || !strings.Contains(err.Error(), "start the local cloud as root") {
			t.Errorf("a sandbox of an image with another user: got %v, want an error that says what to do", err)
		}
		return
	}
	must.Do(t, err)
	if got, err := output(t, as, envdclient.Shell("id -un; id -gn; pwd")); got != "app\nstaff\n/srv/app\n" || err != nil {
		t.Errorf("as the user of the image: got %q, %v, want app, staff and its home", got, err)
	}
}

// TestImageWithoutShell checks an image without a shell. Programs run, even if a command line only
// names one. Other command lines report that the shell is missing.
func TestImageWithoutShell(t *testing.T) {
	t.Parallel()
	c := startImages(t)
	r, err := c.launchImage(t, []string{imagetest.Layer(t, c.ids, true, func(root string) error { return imagetest.Busybox(t, root, "echo", "cat") })}, nil)
	must.Do(t, err)
	if got, err := output(t, r, envdclient.Command{Args: []string{"echo", "works"}}); got != "works\n" || err != nil {
		t.Errorf("got %q, %v, want works", got, err)
	}
	if got, err := output(t, r, envdclient.Shell("echo 'two  words' x=1")); got != "two  words x=1\n" || err != nil {
		t.Errorf("a line of words: got %q, %v, want them", got, err)
	}
	for _, command := range []envdclient.Command{envdclient.Shell("echo; echo"), envdclient.Shell("missing"), {Args: []string{"missing"}}} {
		if got, err := output(t, r, command); err == nil || !strings.Contains(err.Error(), "neither /bin/bash nor /bin/sh") {
			t.Errorf("%q: got %q, %v, want an error that names the shells", command.Args, got, err)
		}
	}
}

// TestImagePython checks that kernels run the Python of the image, which has no IPython.
func TestImagePython(t *testing.T) {
	t.Parallel()
	c := startImages(t)
	layers := []string{imagetest.Layer(t, c.ids, true, func(root string) error { return imagetest.Busybox(t, root) })}
	layers = append(layers, imagetest.Layer(t, c.ids, false, func(root string) error { return imagetest.Python(t, root) }))
	r, err := c.launchImage(t, layers, nil)
	must.Do(t, err)
	if got := runCode(t, r, "import os, sys; print(os.environ['OF'], sys.executable, os.getcwd()); 2+2"); !strings.Contains(got, `the image /bin/python3 /home/user\n`) || !strings.Contains(got, `"4"`) {
		t.Errorf("code: got %s, want the Python and the environment of the image", got)
	}
	if got := runCode(t, r, "import numpy"); !strings.Contains(got, "ModuleNotFoundError") {
		t.Errorf("a module of this machine: got %s, want none", got)
	}
	broken := imagetest.Layer(t, c.ids, false, func(root string) error {
		return writeFiles(root, map[string]string{"bin/python3": "#!/bin/sh\necho 'nothing works' >&2\nexit 3\n"})
	})
	r, err = c.launchImage(t, append(slices.Clone(layers[:1]), broken), nil)
	must.Do(t, err)
	if got := runCode(t, r, "1"); !strings.Contains(got, "nothing works") {
		t.Errorf("a Python that does not start: got %s, want what it said", got)
	}
}
