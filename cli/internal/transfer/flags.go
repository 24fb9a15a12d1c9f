// Package transfer copies files and directories between this machine, sandboxes and volumes. [Copy]
// implements one rule for the destination of all copies, and never leaves an incomplete file on
// this machine. [Flags] contains the flags --upload and --download of the commands that create a
// sandbox of their own.
package transfer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// pair is the value of one --upload or --download.
type pair struct{ source, target string }

// uploads is a repeatable flag that accepts LOCAL:REMOTE, and downloads is a repeatable flag that
// accepts REMOTE:LOCAL. A local path may contain colons (C:\data), but a remote path may not.
type (
	uploads   []pair
	downloads []pair
)

// Flags are the flags that copy files into a sandbox before a command runs there, and out
// of it afterwards.
type Flags struct {
	uploads   uploads
	downloads downloads
	maxBytes  cmdutil.Size // the bound of each download
	maxFiles  cmdutil.Count
}

// Add adds the flags to cmd. The help of the flags uses what for the program that cmd runs, such as
// "the command".
func (f *Flags) Add(cmd *cobra.Command, what string) {
	f.AddUploads(cmd, what)
	flags := cmd.Flags()
	flags.Var(&f.downloads, "download", "copy out of the sandbox after "+what+", repeatable")
	flags.Var(&f.maxBytes, "max-download", "most bytes of one --download; of a directory, what came until\nthen stays")
	flags.Var(&f.maxFiles, "max-files", "most files, directories and links of one --download")
}

// AddUploads adds only those of the flags that copy into a sandbox.
func (f *Flags) AddUploads(cmd *cobra.Command, what string) {
	f.maxBytes, f.maxFiles = sandbox.DefaultMaxBytes, sandbox.DefaultMaxFiles
	cmd.Flags().Var(&f.uploads, "upload", "copy into the sandbox before "+what+", repeatable")
}

func (u *uploads) Type() string     { return "LOCAL:REMOTE" }
func (u *uploads) String() string   { return joinTransfers(*u) }
func (d *downloads) Type() string   { return "REMOTE:LOCAL" }
func (d *downloads) String() string { return joinTransfers(*d) }

func (u *uploads) Set(value string) error {
	t, err := parseTransfer(value, strings.LastIndexByte(value, ':'))
	if err != nil {
		return fmt.Errorf("want LOCAL:REMOTE, %w", err)
	}
	*u = append(*u, t)
	return nil
}

func (d *downloads) Set(value string) error {
	t, err := parseTransfer(value, strings.IndexByte(value, ':'))
	if err != nil {
		return fmt.Errorf("want REMOTE:LOCAL, %w", err)
	}
	*d = append(*d, t)
	return nil
}

func parseTransfer(value string, colon int) (pair, error) {
	switch {
	case colon < 0:
		return pair{}, errors.New("there is no colon")
	case colon == 0:
		return pair{}, errors.New("the source is empty")
	case colon == len(value)-1:
		return pair{}, errors.New("the target is empty")
	case strings.ContainsRune(value, 0):
		return pair{}, errors.New("a path cannot contain a NUL byte")
	}
	return pair{source: value[:colon], target: value[colon+1:]}, nil
}

func joinTransfers(ts []pair) string {
	parts := make([]string, len(ts))
	for i, t := range ts {
		parts[i] = t.source + ":" + t.target
	}
	return strings.Join(parts, ",")
}
