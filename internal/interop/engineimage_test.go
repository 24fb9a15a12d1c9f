//go:build linux

package interop

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// usualImage is the default image of the docker engine. The tests' daemon has an image of their
// own under that name.
const usualImage = "python:3.12-slim"

// addUsualImage makes an image in the daemon with the programs for the cases: bash and Python
// of this machine, git, and the prepared environment with IPython, numpy, pandas and
// matplotlib.
func addUsualImage(t *testing.T, d *dockertest.Daemon, python string) {
	t.Helper()
	environment := filepath.Dir(filepath.Dir(python))
	files := append([]string{environment}, programs(t)...)
	for _, library := range librariesOf(t, append(objects(t, environment), files[1:]...)) {
		if !strings.HasPrefix(library, environment+"/") {
			files = append(files, library)
		}
	}

	// Every usual image has these, but not the one of the tests.
	const made, have = "usual", "mkdir -p /opt /srv /root; ln -s /bin/env /usr/bin/env; echo root:x:0: >/etc/group"
	d.Docker(t, "run", "--network", "none", "--name", made, dockertest.Image, "sh", "-c", have)
	// Links are followed, because some lead to directories of this machine that the image does
	// not have. lib64 is a link to lib: following it would pack everything twice.
	pack := exec.CommandContext(t.Context(), "tar", "--create", "--dereference", "--hard-dereference", "--absolute-names", "--exclude="+environment+"/lib64",
		"--transform=s,^/,,", "--files-from=-")
	pack.Stdin = strings.NewReader(strings.Join(files, "\n") + "\n")
	unpack := exec.CommandContext(t.Context(), "docker", "--host", d.Host(), "cp", "-", made+":/")
	must.Do(t, pipe(pack, unpack))
	path := filepath.Dir(python) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	d.Docker(t, "commit", "--change", "ENV PATH="+path, made, usualImage)
	d.Docker(t, "rm", made)
}

// pipe runs two programs, the second on the output of the first.
func pipe(first, second *exec.Cmd) error {
	var said [2]bytes.Buffer
	first.Stderr, second.Stderr = &said[0], &said[1]
	output, err := first.StdoutPipe()
	if err != nil {
		return err
	}
	second.Stdin = output
	if err := first.Start(); err != nil {
		return err
	}
	failed := second.Run()
	_, _ = io.Copy(io.Discard, output) // if the second failed, so that the first can end
	if err := first.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", first, err, &said[0])
	}
	if failed != nil {
		return fmt.Errorf("%s: %w: %s", second, failed, &said[1])
	}
	return nil
}

// programs returns git, the programs that it runs, and curl. Most of those are git itself, by
// names that it does not need.
func programs(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, name := range []string{"git", "git-upload-pack", "git-receive-pack", "curl"} {
		program, err := exec.LookPath(name)
		must.Do(t, err)
		files = append(files, program)
	}
	where, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	must.Do(t, err)
	dir := strings.TrimSpace(string(where))
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	for _, entry := range entries {
		if entry.Type().IsRegular() || entry.Name() == "git-remote-https" {
			files = append(files, filepath.Join(dir, entry.Name()))
		}
	}
	return files
}

// objects returns the shared objects below a directory.
func objects(t *testing.T, dir string) []string {
	t.Helper()
	found, err := exec.CommandContext(t.Context(), "find", dir, "-name", "*.so*", "-type", "f").Output()
	must.Do(t, err)
	return strings.Fields(string(found))
}

// librariesOf returns the libraries that files are linked to.
func librariesOf(t *testing.T, files []string) []string {
	t.Helper()
	linked, _ := exec.CommandContext(t.Context(), "ldd", files...).Output() // it fails for scripts, too
	seen := map[string]bool{}
	var libraries []string
	for _, word := range strings.Fields(string(linked)) {
		if filepath.IsAbs(word) && !strings.HasSuffix(word, ":") && !seen[word] {
			seen[word] = true
			libraries = append(libraries, word)
		}
	}
	return libraries
}
