package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// progressMode is the form in which the log of a build is shown.
type progressMode string

const (
	progressAuto  progressMode = "auto"
	progressPlain progressMode = "plain"
	progressJSON  progressMode = "json"
)

// String implements pflag.Value.
func (m *progressMode) String() string { return string(*m) }

// Type implements pflag.Value.
func (m *progressMode) Type() string { return "auto|plain|json" }

// Set implements pflag.Value.
func (m *progressMode) Set(value string) error {
	switch progressMode(value) {
	case progressAuto, progressPlain, progressJSON:
		*m = progressMode(value)
		return nil
	}
	return errors.New("want auto, plain or json")
}

// entryView is a line of a log as JSON shows it, with the field names of the API.
type entryView struct {
	Timestamp time.Time `json:"timestamp"`
	Level     string    `json:"level"`
	Message   string    `json:"message"`
	Step      string    `json:"step,omitempty"`
}

func entryViewOf(e api.BuildLogEntry) entryView {
	return entryView{e.Time.UTC(), string(e.Level), e.Message, e.Step}
}

// lineOf returns a line of a log for people to read. With timed, it includes the time of the line.
func lineOf(e api.BuildLogEntry, timed bool) string {
	text := cmdutil.Printable(e.Message)
	if e.Level == api.BuildLogWarn || e.Level == api.BuildLogError {
		text = string(e.Level) + ": " + text
	}
	if timed {
		text = e.Time.UTC().Format(time.RFC3339) + " " + text
	}
	return text
}

// progress shows the log of a build on stderr.
type progress struct {
	io     *cmdutil.IOStreams
	json   bool
	timed  bool
	silent bool
}

// newProgress returns a progress. Its lines include times if mode is progressPlain, or if stderr is
// not a terminal.
func newProgress(ios *cmdutil.IOStreams, mode progressMode, quiet bool) *progress {
	return &progress{io: ios, json: mode == progressJSON, timed: mode == progressPlain || !ios.ErrIsTerminal, silent: quiet}
}

func (p *progress) show(e api.BuildLogEntry) {
	switch {
	case p.silent:
	case p.json:
		text, _ := json.Marshal(entryViewOf(e)) // texts and a time: it cannot fail
		fmt.Fprintf(p.io.Err, "%s\n", text)
	case e.Level != api.BuildLogDebug:
		fmt.Fprintln(p.io.Err, lineOf(e, p.timed))
	}
}

// failed shows the last lines of a failed build's log, if no lines were shown before.
func (p *progress) failed(err error) {
	failed, ok := errors.AsType[*template.BuildError](err)
	if !ok || !p.silent {
		return
	}
	for _, e := range failed.Logs {
		fmt.Fprintln(p.io.Err, lineOf(e, p.timed))
	}
}
