package main

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestReadPackages(t *testing.T) {
	t.Parallel()
	source := fstest.MapFS{
		"a/one.go":          {Data: []byte("package a\n\nimport (\n\t\"b\"\n\t\"c\"\n)\n")},
		"a/sub/sub.go":      {Data: []byte("package sub\n")},
		"a/two.go":          {Data: []byte("package a\nimport \"b\"\n")},
		"a/a_test.go":       {Data: []byte("package a\n")},
		"a/testdata/bad.go": {Data: []byte("not Go")},
		"cmd/go/main.go":    {Data: []byte("package main\n")},
		"a/README":          {Data: []byte("text")},
	}
	got, err := readPackages(source)
	want := []goPackage{{Name: "a", Files: 2, Lines: 8, Imports: []string{"b", "c"}}, {Name: "a/sub", Files: 1, Lines: 1}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("readPackages: %v (-want +got):\n%s", err, diff)
	}
}
