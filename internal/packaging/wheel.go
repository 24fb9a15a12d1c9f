package packaging

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

// python has the Python module that accompanies the program in a wheel.
//
//go:embed all:python/e2bctl
var python embed.FS

// wheelTags are the platforms of wheels, as pip names them, keyed by system and architecture. The
// program needs no C library, so its wheels for Linux serve glibc and musl.
var wheelTags = map[string]string{
	"linux/amd64":   "manylinux_2_17_x86_64.musllinux_1_1_x86_64",
	"linux/arm64":   "manylinux_2_17_aarch64.musllinux_1_1_aarch64",
	"darwin/amd64":  "macosx_12_0_x86_64",
	"darwin/arm64":  "macosx_12_0_arm64",
	"windows/amd64": "win_amd64",
	"windows/arm64": "win_arm64",
}

// summary is the line with which indexes describe the package.
const summary = "E2B-style cloud sandboxes: a command, and a cloud of its own on this machine"

// Wheel writes a wheel of pip to dir, with the program as a script, the Python module e2bctl, and a
// list of the program's parts. readme is the text that an index shows. licences are files to
// add. Wheel returns the path of the wheel.
func Wheel(b *Build, dir string, program, readme, sbom []byte, licences []File) (string, error) {
	tag, ok := wheelTags[b.System+"/"+b.Architecture]
	if !ok {
		return "", fmt.Errorf("packaging: pip has no name for %s/%s", b.System, b.Architecture)
	}
	version := pythonVersion(b.Release())
	info := "e2bctl-" + version + ".dist-info/"
	var files []File
	err := fs.WalkDir(python, "python/e2bctl", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := python.ReadFile(name)
		files = append(files, File{Name: strings.TrimPrefix(name, "python/"), Content: text})
		return err
	})
	if err != nil {
		return "", err
	}
	metadata := &strings.Builder{}
	fmt.Fprintf(metadata, "Metadata-Version: 2.4\nName: e2bctl\nVersion: %s\nSummary: %s\n"+
		"License-Expression: Apache-2.0\nRequires-Python: >=3.9\nKeywords: sandbox,agents,e2b\nProject-URL: Source, https://github.com/e2bctl/e2bctl\n"+
		"Classifier: Framework :: Pytest\nClassifier: Typing :: Typed\nDescription-Content-Type: text/markdown\n", version, summary)
	for _, f := range licences {
		fmt.Fprintf(metadata, "License-File: %s\n", f.Name)
		files = append(files, File{Name: info + "licenses/" + f.Name, Content: f.Content})
	}
	files = append(files,
		File{Name: "e2bctl-" + version + ".data/scripts/" + b.Program(), Content: program, Mode: 0o755},
		File{Name: info + "METADATA", Content: []byte(metadata.String() + "\n" + string(readme))},
		File{Name: info + "entry_points.txt", Content: []byte("[pytest11]\ne2bctl = e2bctl.pytest_plugin\n")},
		File{Name: info + "sboms/e2bctl.cdx.json", Content: sbom},
		File{Name: info + "WHEEL", Content: wheelText(tag)},
	)
	files = append(files, File{Name: info + "RECORD", Content: record(files, info+"RECORD")})
	name := filepath.Join(dir, fmt.Sprintf("e2bctl-%s-py3-none-%s.whl", version, tag))
	return name, writeFile(name, func(w io.Writer) error { return writeZip(w, b.Time, files) })
}

func wheelText(tag string) []byte {
	text := "Wheel-Version: 1.0\nGenerator: e2bctl\nRoot-Is-Purelib: false\n"
	for one := range strings.SplitSeq(tag, ".") {
		text += "Tag: py3-none-" + one + "\n"
	}
	return []byte(text)
}

// record returns the list of a wheel's files, with their checksums and sizes.
func record(files []File, own string) []byte {
	out := &strings.Builder{}
	w := csv.NewWriter(out)
	for _, f := range files {
		sum := sha256.Sum256(f.Content)
		_ = w.Write([]string{f.Name, "sha256=" + base64.RawURLEncoding.EncodeToString(sum[:]), fmt.Sprint(len(f.Content))}) // to memory
	}
	_ = w.Write([]string{own, "", ""})
	w.Flush()
	return []byte(out.String())
}

// pseudoVersion matches the version that the go command gives to a commit without a tag.
var pseudoVersion = regexp.MustCompile(`^(\d+\.\d+\.\d+)-(?:0\.)?(\d{14})-[0-9a-f]{12}$`)

// pythonVersion returns a version in the form that pip accepts: an alpha, a beta or a release
// candidate without separators, and a commit without a tag as a version in development.
func pythonVersion(version string) string {
	if m := pseudoVersion.FindStringSubmatch(version); m != nil {
		return m[1] + ".dev" + m[2]
	}
	number, pre, found := strings.Cut(version, "-")
	if !found {
		return version
	}
	for name, short := range map[string]string{"alpha": "a", "beta": "b", "rc": "rc"} {
		if rest, is := strings.CutPrefix(pre, name); is {
			return number + short + strings.TrimPrefix(rest, ".")
		}
	}
	return number + ".dev0"
}
