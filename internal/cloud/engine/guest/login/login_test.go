package login_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest/login"
	"github.com/e2bctl/e2bctl/internal/must"
)

// shells are those that are tried, of the machine's.
var shells = []string{"bash", "dash"}

// atLogin runs a line like a login shell with this profile, and returns the output.
func atLogin(t *testing.T, shell, profile string, environment []string, line string) string {
	t.Helper()
	program, err := exec.LookPath(shell)
	if err != nil {
		t.Skip("no " + shell + " on this machine")
	}
	cmd := exec.CommandContext(t.Context(), program, "-c", profile+line)
	cmd.Env = append([]string{"HOME=/nowhere"}, environment...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// Login shells keep the PATH that they were given, whatever /etc/profile sets, and others
// get that of envd.
func TestProfilePath(t *testing.T) {
	t.Parallel()
	const own = "/own dir/bin:/bin:/usr/bin"
	directory := t.TempDir()
	write := func(name, text string) {
		must.Do(t, os.WriteFile(filepath.Join(directory, name), []byte(text), 0o644))
	}
	write(filepath.Base(login.PathFile), login.PathText(own))
	write("aa.sh", "PATH=/added:$PATH\n")
	for name, text := range map[string]string{
		"ours": login.PlainProfile, "sets PATH": "PATH=/nowhere; export PATH\n" + login.PlainProfile,
		"no newline": strings.TrimSuffix(login.PlainProfile, "\n"),
	} {
		profile := strings.ReplaceAll(login.Profile(text), filepath.Dir(login.PathFile), directory)
		if again := login.Profile(login.Profile(text) + "X=1\n"); again != login.Profile(text)+"X=1\n" {
			t.Errorf("%s: a text that has grown: got %q", name, again)
		}
		for _, shell := range shells {
			for want, environment := range map[string][]string{
				"/added:/opt/mine:/x": {"PATH=/opt/mine:/x", "E2B_SANDBOX=true"},
				"/added:" + own:       {"PATH=/usr/bin"}, // of su
			} {
				if got := atLogin(t, shell, profile, environment, `echo "$PATH ${e2bctl_path-}${e2bctl_file-}"`); got != want+" \n" {
					t.Errorf("%s, %s, %q: got %q, want %q", name, shell, environment, got, want)
				}
			}
		}
	}
	bare := strings.ReplaceAll(login.Profile("PATH=/nowhere\n"), filepath.Dir(login.PathFile), directory)
	if got := atLogin(t, "bash", bare, []string{"PATH=/mine", "E2B_SANDBOX=true"}, "echo $PATH"); got != "/mine\n" {
		t.Errorf("a profile that reads no other file: got %q, want /mine", got)
	}
	for want, environment := range map[string][]string{
		"/opt/mine": {"PATH=/opt/mine", "E2B_SANDBOX=true", "LAST=PATH=x"},
		own:         {"PATH=/usr/bin"},
	} {
		if got := atLogin(t, "bash", "PATH=/nowhere\n"+login.InPlaceProfile(own), environment, "echo $PATH"); got != want+"\n" {
			t.Errorf("in place, %q: got %q, want %q", environment, got, want)
		}
	}
}

// The files of a home are read where the service's are, and say nothing of their own.
func TestHomeFiles(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for name, text := range map[string]string{".bashrc": "echo rc\n" + login.UserBashrc, ".profile": login.UserProfile} {
		must.Do(t, os.WriteFile(filepath.Join(home, name), []byte(text), 0o644))
	}
	must.Do(t, os.MkdirAll(filepath.Join(home, ".local/bin"), 0o755))
	environment := []string{"PATH=/usr/bin:/bin", "E2B_SANDBOX=true", "HOME=" + home}
	for shell, want := range map[string]string{"bash": "rc\nrc\n", "dash": ""} {
		want += home + "/.local/bin:/usr/bin:/bin\n"
		if got := atLogin(t, shell, login.Profile(""), environment, "echo $PATH"); got != want {
			t.Errorf("%s: got %q, want %q", shell, got, want)
		}
	}
}
