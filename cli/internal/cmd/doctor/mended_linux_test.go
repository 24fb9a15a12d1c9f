package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
)

// fix runs doctor --fix with more arguments.
func fix(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	err = cmdtest.Execute(t, cmdutil.NewIOStreams(nil, &o, &e), func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdDoctor(f)} },
		append([]string{"doctor", "--fix"}, args...)...)
	return o.String(), e.String(), err
}

// TestFix checks the output of a mend of a program that has full isolation, and that a machine without the restriction
// of AppArmor is left as it is.
func TestFix(t *testing.T) {
	fresh(t)
	t.Setenv("SUDO_UID", "")
	program, err := os.Executable()
	must.Do(t, err)
	nothing := "There is nothing to mend: " + program + " has full isolation\n"
	const trying = "Trying a sandbox with full isolation\n"
	for args, want := range map[string][2]string{
		"--yes":                  {"", trying + nothing},
		"--quiet":                {"", ""},
		"--yes --quiet":          {"", ""},
		"-o json":                {fmt.Sprintf("{\n  \"changed\": false,\n  \"program\": %q\n}\n", program), trying},
		"--yes -q --output json": {fmt.Sprintf("{\n  \"changed\": false,\n  \"program\": %q\n}\n", program), ""},
	} {
		out, errs, err := fix(t, strings.Fields(args)...)
		if diff := cmp.Diff(want, [2]string{out, errs}); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", args, err, diff)
		}
	}
	if value, err := os.ReadFile(restriction); err == nil && strings.TrimSpace(string(value)) == "1" {
		return // a mend might change this machine
	}
	t.Setenv(refusedVariable, "clone: permission denied")
	out, errs, err := fix(t)
	if err == nil || out != "" || errs != trying {
		t.Fatalf("got %q, %q, %v", out, errs, err)
	}
	for _, want := range []string{"mend the isolation: a profile of AppArmor would not help, because ", "What was refused: " + program + ": exit status 2: panic: clone: permission denied"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// TestSudoUser checks that only root, and only by sudo, tries sandboxes as another user.
func TestSudoUser(t *testing.T) {
	fresh(t)
	for id, want := range map[string]string{"": "", "0": "", "65534": "65534", "1999999999": "SUDO_UID=1999999999"} {
		t.Setenv("SUDO_UID", id)
		found, err := sudoUser()
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case found != nil:
			got = found.Uid
		}
		if os.Geteuid() != 0 {
			want = ""
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("SUDO_UID=%q: got %q, want %q", id, got, want)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	t.Setenv("SUDO_UID", "1999999999")
	if out, errs, err := fix(t); err == nil || out+errs != "" || !strings.Contains(err.Error(), "find the user of SUDO_UID=") {
		t.Errorf("a user who does not exist: got %q, %q, %v", out, errs, err)
	}
}

// TestCredential checks that a process of another user has its ids and its groups, and that no id is guessed.
func TestCredential(t *testing.T) {
	t.Parallel()
	own, err := user.Current()
	must.Do(t, err)
	groups, err := own.GroupIds()
	must.Do(t, err)
	got, err := credentialOf(&user.User{Uid: "65533", Gid: own.Gid, Username: own.Username})
	must.Do(t, err)
	ids := []string{fmt.Sprint(got.Uid), fmt.Sprint(got.Gid)}
	for _, group := range got.Groups {
		ids = append(ids, fmt.Sprint(group))
	}
	if diff := cmp.Diff(append([]string{"65533", own.Gid}, groups...), ids); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for want, u := range map[string]*user.User{
		"list groups":          {Uid: own.Uid, Gid: "x", Username: own.Username},
		`parsing "-1"`:         {Uid: "-1", Gid: own.Gid, Username: own.Username},
		`parsing "4294967296"`: {Uid: "4294967296", Gid: own.Gid, Username: own.Username},
	} {
		if got, err := credentialOf(u); err == nil || !strings.Contains(err.Error(), want) || got != nil {
			t.Errorf("%+v: got %+v, %v, want %q", u, got, err, want)
		}
	}
}

// TestTry checks which command tries full isolation, in which directory and environment, and as which user.
func TestTry(t *testing.T) {
	fresh(t)
	dir := t.TempDir()
	must.Do(t, errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755))) // so that another user may run it
	program := filepath.Join(dir, "e2bctl")
	must.Do(t, os.WriteFile(program, []byte("#!/bin/sh\necho \"$PWD $* $(id -u) $(id -g) $HOME $USER $PATH ${DOCTOR_TEST_MORE-none}\"\nexit 3\n"), 0o755))
	t.Setenv("USER", "me")
	t.Setenv("PATH", "/usr/bin:/bin")
	t.Setenv("DOCTOR_TEST_MORE", "more")
	const ran = ": exit status 3: / run --local --quiet --engine room --isolation full -- true "
	err := tryAs(t.Context(), nil, program)
	if want := fmt.Sprintf("%s%s%d %d %s me /usr/bin:/bin more", program, ran, os.Geteuid(), os.Getegid(), os.Getenv("HOME")); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	must.Do(t, tryAs(t.Context(), nil, "/bin/true"))
	as := &user.User{Uid: "65533", Gid: "65532", Username: "root", HomeDir: "/home/other"}
	wrong := *as
	wrong.Uid = "x"
	if err := tryAs(t.Context(), &wrong, "/bin/true"); err == nil || !strings.HasPrefix(err.Error(), "try it as root: ") {
		t.Errorf("a wrong id: got %v", err)
	}
	if os.Geteuid() != 0 {
		return // only root may run programs as another user
	}
	err = tryAs(t.Context(), as, program)
	if want := program + ran + "65533 65532 /home/other root /usr/local/bin:/usr/bin:/bin none"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestPrintedProfile checks that the profile of another program is printed with the way to load it, and that only a file
// has one.
func TestPrintedProfile(t *testing.T) {
	fresh(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must.Do(t, err)
	t.Chdir(dir)
	must.Do(t, errors.Join(os.Mkdir("a", 0o700), os.WriteFile("a/agent", nil, 0o700), os.WriteFile("a b", nil, 0o700), os.Symlink("a/agent", "link")))
	path := filepath.Join(dir, "a/agent")
	p, err := profileOf(path)
	must.Do(t, err)
	how := "Write it to " + p.path() + ", and run: sudo apparmor_parser --replace " + p.path() + "\nLet only root write to the program: whoever can replace it gets user namespaces, too\n"
	var view strings.Builder
	must.Do(t, cmdutil.WriteJSON(&view, fixView{Program: path, Profile: p.path(), Text: p.Text}))
	for args, want := range map[string][3]string{
		path:           {p.Text, how},
		"a/agent":      {p.Text, how},
		"link":         {p.Text, how},
		"link --quiet": {p.Text},
		"link -o json": {view.String()},
		"none":         {"", "", "--program: lstat " + filepath.Join(dir, "none") + ": no such file or directory"},
		".":            {"", "", "--program: " + dir + " is no file"},
		"/dev/null":    {"", "", "--program: /dev/null is no file"},
	} {
		out, errs, err := fix(t, append([]string{"--program"}, strings.Fields(args)...)...)
		got := [3]string{out, errs}
		if err != nil {
			got[2] = err.Error()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", args, diff)
		}
	}
	if out, errs, err := fix(t, "--program", "a b"); err == nil || out+errs != "" || !strings.HasPrefix(err.Error(), "write an AppArmor profile for "+strconv.Quote(filepath.Join(dir, "a b"))) {
		t.Errorf("a path with a blank: got %q, %q, %v", out, errs, err)
	}
}
