package packaging

import (
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
)

// node has the files of npm's package e2bctl, without its package.json.
//
//go:embed npm
var node embed.FS

// npmPlatforms maps the platforms with a package of npm, as GOOS/GOARCH, to their names in Node.
var npmPlatforms = map[string]string{
	"linux/amd64": "linux-x64", "linux/arm64": "linux-arm64", "darwin/amd64": "darwin-x64", "darwin/arm64": "darwin-arm64",
	"windows/amd64": "win32-x64", "windows/arm64": "win32-arm64",
}

// npmPackage is a package.json.
type npmPackage struct {
	Name            string            `json:"name"`
	Version         string            `json:"version"`
	Description     string            `json:"description"`
	License         string            `json:"license"`
	Repository      map[string]string `json:"repository"`
	Keywords        []string          `json:"keywords,omitempty"`
	OS              []string          `json:"os,omitempty"`
	CPU             []string          `json:"cpu,omitempty"`
	PreferUnplugged bool              `json:"preferUnplugged,omitempty"` // makes Yarn unpack the program, so that it can run
	Engines         map[string]string `json:"engines,omitempty"`
	Bin             map[string]string `json:"bin,omitempty"`
	Main            string            `json:"main,omitempty"`
	Types           string            `json:"types,omitempty"`
	Exports         map[string]any    `json:"exports,omitempty"`
	Optional        map[string]string `json:"optionalDependencies,omitempty"`
}

// NPMProgram writes the package of npm with the program for one platform to dir. licences are
// files to add. NPMProgram returns the path of the package.
func NPMProgram(b *Build, dir string, program, sbom []byte, licences []File) (string, error) {
	platform, ok := npmPlatforms[b.System+"/"+b.Architecture]
	if !ok {
		return "", fmt.Errorf("packaging: npm has no name for %s/%s", b.System, b.Architecture)
	}
	system, processor, _ := strings.Cut(platform, "-")
	p := newNPMPackage(b, "@e2bctl/"+platform, "The program of e2bctl for "+platform)
	p.OS, p.CPU, p.PreferUnplugged = []string{system}, []string{processor}, true
	files := append([]File{
		{Name: "bin/" + b.Program(), Content: program, Mode: 0o755},
		{Name: "README.md", Content: []byte("# " + p.Name + "\n\nThe program of the package e2bctl for " + platform + ". Install e2bctl.\n")},
		{Name: "e2bctl.cdx.json", Content: sbom},
	}, licences...)
	return p.write(b, filepath.Join(dir, fmt.Sprintf("e2bctl-%s-%s.tgz", platform, p.Version)), files)
}

// NPM writes the package e2bctl of npm to dir. It contains a command and a module, and has the packages
// of NPMProgram as optional dependencies. npm installs only the dependency for its platform. The version
// and the time are those of b. NPM returns the path of the package.
func NPM(b *Build, dir string, licence File) (string, error) {
	files, err := npmFiles()
	if err != nil {
		return "", err
	}
	p := newNPMPackage(b, "e2bctl", summary)
	p.Keywords = []string{"sandbox", "agents", "e2b"}
	p.Engines = map[string]string{"node": ">=18"}
	p.Bin = map[string]string{"e2bctl": "bin/e2bctl.js"}
	p.Main, p.Types = "./index.cjs", "./index.d.cts"
	p.Exports = map[string]any{
		".": map[string]any{
			"import":  map[string]string{"types": "./index.d.mts", "default": "./index.mjs"},
			"require": map[string]string{"types": "./index.d.cts", "default": "./index.cjs"},
		},
		"./package.json": "./package.json",
	}
	p.Optional = map[string]string{}
	for _, platform := range npmPlatforms {
		p.Optional["@e2bctl/"+platform] = p.Version
	}
	return p.write(b, filepath.Join(dir, "e2bctl-"+p.Version+".tgz"), append(files, licence))
}

func newNPMPackage(b *Build, name, description string) npmPackage {
	return npmPackage{
		Name: name, Version: b.Release(), Description: description, License: "Apache-2.0",
		Repository: map[string]string{"type": "git", "url": "git+https://github.com/e2bctl/e2bctl.git"},
	}
}

// npmFiles returns the files of the package e2bctl, without its package.json and its licence.
func npmFiles() ([]File, error) {
	dir, err := fs.Sub(node, "npm")
	if err != nil {
		return nil, err
	}
	files, err := FilesOf(dir, "")
	for i := range files {
		if strings.HasPrefix(files[i].Name, "bin/") {
			files[i].Mode = 0o755
		}
	}
	return files, err
}

// write writes the package to path, with files beside its package.json.
func (p npmPackage) write(b *Build, path string, files []File) (string, error) {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return "", err
	}
	inside := []File{{Name: "package/package.json", Content: append(text, '\n')}}
	for _, f := range files {
		f.Name = "package/" + f.Name
		inside = append(inside, f)
	}
	return path, writeFile(path, func(w io.Writer) error { return writeTar(w, b.Time, inside) })
}
