// Package version implements e2bctl version, and the output of e2bctl --version.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

type versionOptions struct {
	IO   *cmdutil.IOStreams
	JSON bool
}

// NewCmdVersion returns e2bctl version.
func NewCmdVersion(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of e2bctl",
		Long:  "Print the version of e2bctl, the version of Go that built it and the system it is\nfor. It uses no network.",
		Args:  cmdutil.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			return versionRun(&versionOptions{IO: f.IO, JSON: f.JSON()})
		},
	}
}

// buildVersion contains the version data that the go command recorded in this binary.
type buildVersion struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	System   string `json:"system"`
}

func readBuildVersion() buildVersion {
	v := buildVersion{Version: "(devel)", Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func versionRun(opts *versionOptions) error {
	v := readBuildVersion()
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, v)
	}
	_, err := fmt.Fprintln(opts.IO.Out, "e2bctl", v.line())
	return err
}

// Number returns the version alone, such as "v1.2.3".
func Number() string { return readBuildVersion().Version }

// Line returns the version in one line.
func Line() string { return readBuildVersion().line() }

// Build returns a text that is equal in both programs of one build: the commit or, if the build
// recorded no commit, the version.
func Build() string {
	v := readBuildVersion()
	if v.Modified {
		v.Commit += "+modified"
	}
	return cmp.Or(v.Commit, v.Version)
}

func (v buildVersion) line() string { return v.Version + " " + v.Go + " " + v.System }
