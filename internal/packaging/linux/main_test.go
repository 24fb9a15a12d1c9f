package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDeb installs a package below a directory of its own, runs the program in it, and removes the package.
func TestDeb(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("dpkg is not there: ", err)
		}
		t.Skip("dpkg is not there: ", err)
	}
	dir := t.TempDir()
	deb := filepath.Join(dir, "e2bctl.deb")
	do(t, os.WriteFile(deb, realPackages(t)["e2bctl_1.2.3-1_"+runtime.GOARCH+".deb"], 0o600))
	listed := run(t, nil, "dpkg-deb", "-c", deb)
	for _, want := range []string{
		"-rwxr-xr-x root/root", "./usr/bin/e2bctl\n", "./usr/share/man/man1/e2bctl.1\n", "./usr/share/bash-completion/completions/e2bctl\n",
		"./usr/share/zsh/vendor-completions/_e2bctl\n", "./usr/share/fish/vendor_completions.d/e2bctl.fish\n",
		"./usr/lib/systemd/user/e2bctl.service\n", "./usr/share/e2bctl/apparmor\n", "./usr/share/doc/e2bctl/NOTICES.txt\n",
	} {
		if !strings.Contains(listed, want) {
			t.Errorf("the package has no %q:\n%s", want, listed)
		}
	}
	if strings.Contains(listed, "site-functions") {
		t.Error("the .deb has a file that belongs to the .rpm")
	}

	root := filepath.Join(dir, "root")
	do(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg/info"), 0o755))
	do(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg/updates"), 0o755))
	do(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o600))
	dpkg := []string{"--root=" + root, "--force-script-chrootless", "--force-not-root", "--log=" + filepath.Join(dir, "log")}
	run(t, nil, "dpkg", append(dpkg, "-i", deb)...)
	program := filepath.Join(root, "usr/bin/e2bctl")
	home := []string{"HOME=" + dir}
	if got := run(t, home, program, "version"); !strings.HasPrefix(got, "e2bctl ") {
		t.Errorf("e2bctl version prints %q", got)
	}
	if got := run(t, home, program, "run", "--local", "--", "echo", "hi"); !strings.Contains(got, "hi\n") {
		t.Errorf("e2bctl run --local prints %q", got)
	}
	if os.Geteuid() == 0 { // other users may have sandboxes with one id, in which dpkg cannot change files of root
		const install = "apt-get install -y /tmp/e2bctl.deb >&2 && e2bctl version && apt-get remove -y e2bctl >&2 && [ ! -e /usr/bin/e2bctl ]"
		if got := run(t, home, program, "run", "-q", "--local", "--user", "root", "--upload", deb+":/tmp/e2bctl.deb", "--", "sh", "-c", install); !strings.Contains(got, "\ne2bctl ") {
			t.Errorf("after apt-get install in a sandbox, e2bctl version prints %q", got)
		}
		checkCutInstall(t, home, program, deb)
	}
	run(t, nil, "dpkg", append(dpkg, "-r", "e2bctl")...)
	if _, err := os.Stat(program); !os.IsNotExist(err) {
		t.Errorf("after dpkg -r the program is there: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(root, "usr/share/*"))
	do(t, err)
	if len(left) != 0 {
		t.Errorf("dpkg -r leaves %q", left)
	}
}

// killingDpkgDeb stands in for the program that unpacks a package for dpkg. It kills dpkg in the middle of the files.
const killingDpkgDeb = `#!/bin/sh
case "$*" in
*--fsys-tarfile*) /usr/bin/dpkg-deb "$@" | head -c 1000000; kill -9 $PPID ;;
*) exec /usr/bin/dpkg-deb "$@" ;;
esac
`

// cutInstall installs a package in a sandbox. First dpkg is killed in the middle of the files, and then the disk of
// the sandbox is full. After each, it follows the advice of dpkg and apt-get.
const cutInstall = `
apt() { apt-get "$@" >>/tmp/log 2>&1 || { cat /tmp/log; false; }; }
mkdir /tmp/bin
mv /tmp/killing /tmp/bin/dpkg-deb
chmod 755 /tmp/bin/dpkg-deb
sh -c 'PATH=/tmp/bin:$PATH dpkg -i /tmp/e2bctl.deb; exit $?' >>/tmp/log 2>&1 || echo killed with $? # sh says "Killed" in the log
[ ! -e /usr/bin/e2bctl ]
dpkg --configure -a
apt install -y /tmp/e2bctl.deb
e2bctl version
apt remove -y e2bctl
dd if=/dev/zero of=/tmp/full bs=1M count=2000 2>/dev/null || echo full
dpkg -i /tmp/e2bctl.deb >>/tmp/log 2>&1 || echo refused
[ ! -e /usr/bin/e2bctl ]
rm /tmp/full
apt -f install -y
apt install -y /tmp/e2bctl.deb
e2bctl version
dpkg --audit
`

// checkCutInstall checks that a package can be installed after an installation that was cut.
func checkCutInstall(t *testing.T, home []string, program, deb string) {
	t.Helper()
	killing := filepath.Join(t.TempDir(), "killing")
	do(t, os.WriteFile(killing, []byte(killingDpkgDeb), 0o600))
	version := run(t, home, program, "version")
	uploads := []string{"--upload", deb + ":/tmp/e2bctl.deb", "--upload", killing + ":/tmp/killing"}
	got := run(t, home, program, append(append([]string{"run", "-q", "--local", "--disk", "1GiB", "--user", "root"}, uploads...), "--", "sh", "-ec", cutInstall)...)
	if want := "killed with 137\n" + version + "full\nrefused\n" + version; !strings.HasSuffix(got, want) {
		t.Errorf("after installations that were cut, got %q, want %q", got, want)
	}
}

// TestRPM checks the files and the scripts of the .rpm, and installs and removes it below a directory of its own.
func TestRPM(t *testing.T) {
	if _, err := exec.LookPath("rpm"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("rpm is not there: ", err)
		}
		t.Skip("rpm is not there: ", err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "e2bctl.rpm")
	architecture := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	do(t, os.WriteFile(path, realPackages(t)["e2bctl-1.2.3-1."+architecture+".rpm"], 0o600))
	run(t, nil, "rpm", "-K", "--nosignature", path)
	listed := run(t, nil, "rpm", "-qp", "--nosignature", "--qf", "[%{FILEMODES:perms} %{FILEUSERNAME} %{FILENAMES}\\n]", path)
	for _, want := range []string{"-rwxr-xr-x root /usr/bin/e2bctl\n", " /usr/share/zsh/site-functions/_e2bctl\n", " /usr/lib/systemd/user/e2bctl.service\n", " /usr/share/e2bctl/apparmor\n"} {
		if !strings.Contains(listed, want) {
			t.Errorf("the package has no %q:\n%s", want, listed)
		}
	}
	if strings.Contains(listed, "vendor-completions/_e2bctl") {
		t.Error("the .rpm has a file that belongs to the .deb")
	}
	scripts := run(t, nil, "rpm", "-qp", "--nosignature", "--scripts", path)
	for _, name := range []string{"postinstall.sh", "preremove.sh"} {
		want, err := own.ReadFile(name)
		do(t, err)
		if !strings.Contains(scripts, strings.TrimSpace(string(want))) {
			t.Errorf("the scripts lack %s:\n%s", name, scripts)
		}
	}
	if os.Geteuid() != 0 {
		return // rpm changes its root directory
	}
	root := []string{"--root", filepath.Join(dir, "root"), "--nosignature", "--noscripts", "--nodeps"}
	run(t, nil, "rpm", append(root, "-i", path)...)
	program := filepath.Join(dir, "root/usr/bin/e2bctl")
	if got := run(t, []string{"HOME=" + dir}, program, "version"); !strings.HasPrefix(got, "e2bctl ") {
		t.Errorf("e2bctl version prints %q", got)
	}
	run(t, nil, "rpm", "--root", filepath.Join(dir, "root"), "--nodeps", "-V", "e2bctl")
	run(t, nil, "rpm", "--root", filepath.Join(dir, "root"), "--noscripts", "-e", "e2bctl")
	if _, err := os.Stat(program); !os.IsNotExist(err) {
		t.Errorf("after rpm -e the program is there: %v", err)
	}
}

// TestReproducible checks that packages of one archive always have the same bytes.
func TestReproducible(t *testing.T) {
	contents := map[string][]byte{}
	for _, name := range []string{
		"e2bctl", "man/e2bctl.1", "completions/e2bctl.bash", "completions/_e2bctl", "completions/e2bctl.fish",
		"LICENSE", "NOTICES.txt", "CHANGELOG.md", "e2bctl.cdx.json",
	} {
		contents[name] = []byte(name)
	}
	archive := filepath.Join(t.TempDir(), "e2bctl_1.2.3_linux_"+runtime.GOARCH+".tar.gz")
	writeArchive(t, archive, contents)
	first, second := packages(t, archive), packages(t, archive)
	if len(first) != 2 || !maps.EqualFunc(first, second, bytes.Equal) {
		t.Errorf("two runs on one archive make %q and %q, want two packages with the same bytes", slices.Collect(maps.Keys(first)), slices.Collect(maps.Keys(second)))
	}
}

// TestRefuses checks that archives of other systems, and such that lack a file, are errors by name.
func TestRefuses(t *testing.T) {
	if err := pack("e2bctl_1.2.3_darwin_arm64.tar.gz", t.TempDir()); err == nil || !strings.Contains(err.Error(), "_linux_") {
		t.Errorf("an archive for macOS: got %v", err)
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "e2bctl_1.2.3_linux_amd64.tar.gz")
	writeArchive(t, archive, map[string][]byte{"e2bctl": []byte("program")})
	if err := pack(archive, dir); err == nil || !strings.Contains(err.Error(), "the archive has no man/*.1") {
		t.Errorf("an archive without a manual: got %v", err)
	}
}

// TestScripts checks that the scripts of packages are correct for the shell, and that the profile and the
// unit name the place of the program.
func TestScripts(t *testing.T) {
	for _, name := range []string{"postinstall.sh", "preremove.sh"} {
		run(t, nil, "sh", "-n", name)
	}
	for name, want := range map[string]string{
		"e2bctl.apparmor": "profile e2bctl /usr/bin/e2bctl flags=(unconfined) {\n  userns,\n",
		"e2bctl.service":  "ExecStart=/usr/bin/e2bctl local up\n",
	} {
		text, err := fs.ReadFile(own, name)
		do(t, err)
		if !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q:\n%s", name, want, text)
		}
	}
}

// made has the packages with the program of this checkout, once a test has asked for them: to compress them takes
// most of the time of these tests, which run one after the other.
var made map[string][]byte

func realPackages(t *testing.T) map[string][]byte {
	t.Helper()
	if made == nil {
		made = packages(t, archiveOf(t, t.TempDir()))
	}
	return made
}

// packages makes the packages from an archive, and returns their contents by their names.
func packages(t *testing.T, archive string) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	do(t, pack(archive, dir))
	made := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	do(t, err)
	for _, entry := range entries {
		made[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name()))
		do(t, err)
	}
	return made
}

// archiveOf makes an archive, with the program of this checkout and its manual, as make packages does.
func archiveOf(t *testing.T, dir string) string {
	t.Helper()
	built := filepath.Join(dir, "built")
	top := []string{"-C", "../../.."}
	run(t, []string{"CGO_ENABLED=0"}, "go", append(append([]string{"build"}, top...), "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", built+"/e2bctl", "./cli/e2bctl")...)
	run(t, nil, "go", append(append([]string{"run"}, top...), "./cli/manual", "-man", built+"/man", "-completions", built+"/completions")...)
	contents := map[string][]byte{}
	do(t, filepath.WalkDir(built, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(built, path)
		if err != nil {
			return err
		}
		contents[name], err = os.ReadFile(path)
		return err
	}))
	for _, name := range []string{"LICENSE", "NOTICES.txt", "CHANGELOG.md", "e2bctl.cdx.json"} {
		contents[name] = []byte(name)
	}
	archive := filepath.Join(dir, "e2bctl_1.2.3_linux_"+runtime.GOARCH+".tar.gz")
	writeArchive(t, archive, contents)
	return archive
}

func writeArchive(t *testing.T, path string, contents map[string][]byte) {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	for name, content := range contents {
		do(t, archive.WriteHeader(&tar.Header{Name: "e2bctl/" + name, Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(1<<30, 0)}))
		_, err := archive.Write(content)
		do(t, err)
	}
	do(t, archive.Close())
	do(t, compressed.Close())
	do(t, os.WriteFile(path, out.Bytes(), 0o600))
}

func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
