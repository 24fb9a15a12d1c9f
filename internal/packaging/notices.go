package packaging

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licenceFile matches the names of files with a licence or a notice that must accompany a program.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense|notice|patents)([-._].*)?$`)

// Notices returns the licences of the modules in a program, and of Go's standard library. dirOf
// returns the directory of a module's source; goRoot is the directory of Go. The result is an error
// if a module has no licence, because the program must then not be given away.
func Notices(modules []Module, goRoot string, dirOf func(Module) (string, error)) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "e2bctl contains the following software.\n")
	if err := addNotice(&out, "Go, the language and its standard library", goRoot); err != nil {
		return nil, err
	}
	for _, m := range modules {
		dir, err := dirOf(m)
		if err != nil {
			return nil, err
		}
		if err := addNotice(&out, m.Path+" "+m.Version, dir); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

func addNotice(out *bytes.Buffer, name, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("packaging: the licence of %s: %w", name, err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		return !e.Type().IsRegular() || !licenceFile.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go"
	})
	if len(entries) == 0 {
		return fmt.Errorf("packaging: %s has no licence in %s: it cannot be part of a release", name, dir)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("packaging: the licence of %s: %w", name, err)
		}
		fmt.Fprintf(out, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 80), name, e.Name(), strings.TrimSpace(string(text)))
	}
	return nil
}
