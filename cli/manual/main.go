// Manual writes the manual of e2bctl, a page for each command. It is a separate program, so that
// e2bctl does not contain the code that writes pages.
//
//	go run ./cli/manual -markdown cli/manual   # the pages in the repository: make manual
//	go run ./cli/manual -man DIR               # for man, in section 1
//	go run ./cli/manual -completions DIR       # scripts that complete commands in shells
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
	completions := flag.String("completions", "", "write scripts for the completion in shells to `DIR`")
	flag.Parse()
	if err := write(*markdown, *man, *completions); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

// write writes the pages in Markdown and for man, and the scripts for completion, each to its
// directory. If a directory is "", write skips its format. If all directories are "", write returns an
// error.
func write(markdown, man, completions string) error {
	if markdown == "" && man == "" && completions == "" {
		return errors.New("want -markdown DIR, -man DIR, -completions DIR or several of them")
	}
	if markdown != "" {
		if err := writeMarkdown(markdown); err != nil {
			return err
		}
	}
	if man != "" {
		if err := writeMan(man); err != nil {
			return err
		}
	}
	if completions == "" {
		return nil
	}
	return writeCompletions(completions)
}

func writeMan(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// The pages have the date of SOURCE_DATE_EPOCH, if that variable is set, or else of today.
	return doc.GenManTree(described(), &doc.GenManHeader{Title: "E2BCTL", Section: "1", Source: "e2bctl"}, dir)
}

// writeCompletions writes a script for each shell, under the name that the shell looks for.
func writeCompletions(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root := cli.Commands()
	return errors.Join(
		root.GenBashCompletionFileV2(filepath.Join(dir, "e2bctl.bash"), true),
		root.GenZshCompletionFile(filepath.Join(dir, "_e2bctl")),
		root.GenFishCompletionFile(filepath.Join(dir, "e2bctl.fish"), true),
		root.GenPowerShellCompletionFileWithDesc(filepath.Join(dir, "e2bctl.ps1")),
	)
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
