// Manual writes the manual of e2bctl, a page for each command. It is a separate program, so that
// e2bctl does not contain the code that writes pages.
//
//	go run ./cli/manual -markdown cli/manual   # the pages in the repository: make manual
//	go run ./cli/manual -man DIR               # for man, in section 1
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/e2bctl/e2bctl/cli"
)

func main() {
	markdown := flag.String("markdown", "", "write pages of Markdown to `DIR`, in place of the ones there")
	man := flag.String("man", "", "write pages for man to `DIR`")
	flag.Parse()
	if err := write(*markdown, *man); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

// write writes the pages in Markdown and for man, each to its directory. If a directory is "",
// write skips its format. If both directories are "", write returns an error.
func write(markdown, man string) error {
	if markdown == "" && man == "" {
		return errors.New("want -markdown DIR, -man DIR or both")
	}
	if markdown != "" {
		if err := writeMarkdown(markdown); err != nil {
			return err
		}
	}
	if man == "" {
		return nil
	}
	if err := os.MkdirAll(man, 0o755); err != nil {
		return err
	}
	return doc.GenManTree(described(), &doc.GenManHeader{Title: "E2BCTL", Section: "1", Source: "e2bctl"}, man)
}

func writeMarkdown(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "e2bctl*.md"))
	if err != nil {
		return err
	}
	for _, page := range old { // of commands that no longer exist, too
		if err := os.Remove(page); err != nil {
			return err
		}
	}
	return doc.GenMarkdownTree(described(), dir)
}

// described returns the commands, set up so that the pages do not contain the current date.
func described() *cobra.Command {
	root := cli.Commands()
	root.DisableAutoGenTag = true
	return root
}
