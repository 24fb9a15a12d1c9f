package pip

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestRequirements(t *testing.T) {
	t.Parallel()
	wheel := filepath.Join(t.TempDir(), "My_pkg-1.0-py3-none-any.whl")
	must.Do(t, os.WriteFile(wheel, nil, 0o600))
	for text, name := range map[string]string{
		"humanize": "humanize", " humanize ": "humanize", "humanize==4.*": "humanize", "Foo.Bar_baz>=1,<2": "foo-bar-baz", "3to2": "3to2", "zope.interface": "zope-interface",
		"a[x,y]~=1.0": "a", "a[]": "a", "a [ x , y-z.w ] >=1": "a", "a ( >=1 )": "a", "a(==2.8)": "a", "a>=1,!=1.2.*,<2": "a", "a >= 1 , < 2": "a",
		"a===1+local": "a", "a===whatever": "a", "a==1.0+ubuntu.1": "a", "a!=1.0+x": "a", "a!=1.*": "a", "a==1!2.0": "a", "a==1.0rc1.post2.dev3": "a", "a<=2004d.1.dev0": "",
		"a~=1.4.5a4": "a", "a==v1.0": "a", "a==1.0-1": "a",
		`a>=1; python_version < "3.12" and os_name == 'posix'`: "a", `a;python_version<"3"`: "a", `a ; 'linux' in sys_platform`: "a",
		`a; sys_platform not in "win32 darwin"`: "a", `a; (os_name == 'a' or os_name == 'b') and extra == 'quux'`: "a", `a; ((python_full_version >= "3.9"))`: "a",
		`a; platform_machine == ""`: "a",
		wheel:                       "my-pkg",
	} {
		r, err := Parse(text)
		if name == "" {
			if err == nil {
				t.Errorf("%q is taken for a requirement, want an error", text)
			}
			continue
		}
		if err != nil || r.Name != name || r.Import != "" {
			t.Errorf("%q: got %+v, %v, want r.Name = %q, no r.Import and no error", text, r, err, name)
		}
	}
	for _, text := range []string{
		"", " ", "-r", " -rx", "--index-url=http://x", "a; rm -rf /", "a && b", "a|b", "a`b`", "$(a)", "a\nb", "a==1\n--index-url", "a @ http://x/y.whl",
		"http://x/y-1-py3-none-any.whl", "git+https://x", "../a", "/abs", "a/b", "missing-1.0-py3-none-any.whl", "x y", "é", "a>", strings.Repeat("a", 2000), "bad.whl",
		"a[x", "a]", "a[x]]", "a(>=1", "a>=1)", "a>=1,", "a,", "_a", "a-", "a==1.0; ", "a;", "a\x00",
	} {
		_, err := ParseAll([]string{"ok", text})
		refused, ok := errors.AsType[*RefusedError](err)
		if !ok || refused.Requirement != text || len(err.Error()) > 400 {
			t.Errorf("got %v, want a *RefusedError for %q in at most 400 bytes", err, text)
		}
	}
	if _, err := ParseAll(nil); err == nil {
		t.Error("nothing to install, want an error")
	}
}

// TestRequirementReasons checks that errors say how to correct the requirement.
func TestRequirementReasons(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"json":                             "json is part of Python: there is nothing to install",
		"os.path":                          "os is part of Python",
		"subprocess>=1":                    "subprocess is part of Python",
		"numpy.*":                          `a pattern of imports, not a package: to install, name the package ("numpy")`,
		"os.*":                             "a pattern of imports",
		"*":                                "a pattern of imports, not a package: name the packages to install",
		"a=1":                              `"=1" is not of the form ==version`,
		"a==one":                           `"one" is not a version`,
		"a>=1.*":                           ">= does not take a wildcard: only == and != do",
		"a~=1":                             "~=1 needs a second number, as in ~=1.0",
		"a>1.0+x":                          ">1.0+x does not take a local version",
		"bad.whl":                          "not the name of a wheel (name-version-python-abi-platform.whl)",
		"missing-1.0-py3-none-any.whl":     "no such wheel on this machine",
		"--pre":                            "options of pip are not allowed",
		"a @ file:///x":                    "addresses are not allowed here",
		`a; python_version`:                "it ends where a comparison is expected",
		`a; python_version < 3`:            `"3" stands where a variable such as python_version or a "string" is expected`,
		`a; pythn_version < "3"`:           `"pythn_version" stands where a variable`,
		`a; (os_name == "x"`:               "it ends where a closing parenthesis is expected",
		`a; os_name == "x")`:               `")" stands where and, or, or the end is expected`,
		`a; os_name == "x" and`:            "it ends where a variable",
		`a; os_name not "x"`:               `in (of "not in")`,
		`a; os_name = "x"`:                 `stands where a comparison is expected`,
		`a; os_name == "x" os_name == "y"`: `"os_name" stands where and, or, or the end`,
		"a; " + strings.Repeat("(", 900) + `os_name == "x")`: "it ends where a closing parenthesis is expected",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestRequirementsRenamed checks that the name of an import is replaced by the
// package to install, and that this is reported.
func TestRequirementsRenamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"PIL": "pillow", "yaml>=6": "PyYAML>=6", `cv2; python_version > "3"`: `opencv-python-headless; python_version > "3"`, "sklearn": "scikit-learn", "bs4": "beautifulsoup4",
		"dateutil ~= 2.8": "python-dateutil ~= 2.8",
	} {
		r, err := Parse(text)
		if err != nil || r.Text != want {
			t.Errorf("%q: got %+v, %v, want %q and no error", text, r, err, want)
		}
		if r.Import == "" || !strings.HasPrefix(want, r.Distribution) || r.Name != Normalize(r.Distribution) {
			t.Errorf("%q: got %+v, want an import, and the distribution that %q begins with", text, r, want)
		}
	}
	for _, text := range []string{"pillow", "Yaml", "crypto", "yaml[x]"} {
		if r, err := Parse(text); err != nil || r.Import != "" {
			t.Errorf("%q: got %+v, %v, want no r.Import and no error", text, r, err)
		}
	}
	for module, distribution := range importNames() {
		if standardModules()[module] || !lockedName().MatchString(distribution) {
			t.Errorf("%s stands for %s, want a module that Python does not have, and a package", module, distribution)
		}
	}
}

// TestStandardModules checks that the list of standard modules is not older than this
// machine's Python.
func TestStandardModules(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("python3", "-c", "import sys; print('\\n'.join(sorted(getattr(sys, 'stdlib_module_names', ['json']))))").Output()
	must.Do(t, err)
	for name := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(name, "_") && !standardModules()[name] {
			t.Errorf("%s is not on the list", name)
		}
	}
}

func FuzzRequirements(f *testing.F) {
	f.Add("a[b]>=1,<2; python_version < '3'")
	f.Add("a; $(x)")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil || r.Wheel {
			return
		}
		if r.Text[0] == '-' || strings.ContainsAny(r.Text, "\n\r\x00$`|&\\/@%{}#^?:") {
			t.Errorf("%q is taken for a requirement", text)
		}
	})
}

// TestMarkers checks which markers are accepted, and the reason why others are not.
func TestMarkers(t *testing.T) {
	t.Parallel()
	for marker, want := range map[string]string{
		`os_name == "a"`: "", ` os_name=='a' `: "", `"a" == "b"`: "", `os_name == os_name`: "", `extra in "a"`: "", `extra not in "a"`: "", `python_version ~= "3.1"`: "", `os_name === "a"`: "",
		`os_name == "a" or os_name == "b" and os_name == "c" or os_name == "d"`: "", `(os_name == "a" and (os_name == "b" or os_name == "c"))`: "", `os_name == ""`: "",
		"": "it ends where a variable", `os_name`: "it ends where a comparison", `os_name ==`: "it ends where a variable", `== "a"`: `"==" stands where a variable`,
		`os_name == "a" or`: "it ends where a variable", `os_name == "a" and and`: `"and" stands where a variable`, `os_name is "a"`: `"is" stands where a comparison`,
		`os_name not == "a"`: `"==" stands where in (of "not in")`, `os_name not`: "it ends where in (of", `()`: `")" stands where a variable`, `(os_name == "a"`: "it ends where a closing parenthesis",
		`(os_name == "a" os_name`: `"os_name" stands where a closing parenthesis`, `os_name == "a" )`: `")" stands where and, or, or the end`, `os_name == "a" "b"`: `stands where and, or, or the end`,
		`os_name == "$(a)"`: `stands where`, `os_name == 'a"`: `stands where`, `Os_name == "a"`: "stands where a variable", `os_name & "a"`: "stands where a comparison", `os_name == in`: `"in" stands where a variable`,
		`os_name in in "a"`: `"in" stands where a variable`,
	} {
		if got := checkMarker(marker); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", marker, got, want)
		}
	}
}

// TestVersionClauses checks which conditions on versions a requirement may have.
func TestVersionClauses(t *testing.T) {
	t.Parallel()
	for clause, want := range map[string]string{
		"==1": "", "== 1.0": "", "===what.ever": "", "===1.*": "", "==1.*": "", "!=1.*": "", "==1+a": "", "!=1+a.1": "", "~=1.0": "", "~=1.0.0rc1": "", ">=1!2": "", "<2.dev1": "",
		"1": "is not of the form", "=1": "is not of the form", "==": "is not of the form", "==1 2": "is not of the form", "==a": "is not a version", "==1..2": "is not a version", "==*": "is not a version",
		"<=1.*": "<= does not take a wildcard", "~=1.0.*": "~= does not take a wildcard", "==1+a.*": "does not take a local version", ">=1+a": "does not take a local version", "~=1.0+a": "does not take a local version",
		"~=1": "~=1 needs a second number, as in ~=1.0", "~=1rc1": "needs a second number",
	} {
		if got := checkVersionClause(clause); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", clause, got, want)
		}
	}
	for length, fits := range map[int]bool{maxRequirement: true, maxRequirement + 1: false} {
		if _, err := Parse(strings.Repeat("a", length)); (err == nil) != fits {
			t.Errorf("%d bytes: got error %v, want it to fit: %v", length, err, fits)
		}
	}
	for text, isImport := range map[string]bool{"json": true, "a.*": true, "*": true, "-r": false, "a b": false, "x.whl": false} {
		_, err := Parse(text)
		if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Import != isImport || refused.Requirement != text {
			t.Errorf("%q: got %+v, want a refusal of an import: %v", text, refused, isImport)
		}
	}
	all, err := ParseAll([]string{"Foo.Bar", "PIL"})
	must.Do(t, err)
	want := []Requirement{{Text: "Foo.Bar", Name: "foo-bar"}, {Text: "pillow", Name: "pillow", Import: "PIL", Distribution: "pillow"}}
	if diff := cmp.Diff(want, all); diff != "" || strings.Join(Names(all), " ") != "foo-bar pillow" {
		t.Errorf("names %v (-want +got):\n%s", Names(all), diff)
	}
	wheel := filepath.Join(t.TempDir(), "My_pkg-1.0-py3-none-any.whl")
	must.Do(t, os.WriteFile(wheel, nil, 0o600))
	r, err := Parse(wheel)
	if diff := cmp.Diff(Requirement{Text: wheel, Name: "my-pkg", Wheel: true}, r); diff != "" || err != nil {
		t.Errorf("a wheel: error %v (-want +got):\n%s", err, diff)
	}
}
