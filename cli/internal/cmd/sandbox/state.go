package sandbox

import (
	"errors"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/sandbox"
)

// states is a flag value that accepts states of sandboxes separated by commas.
type states []api.SandboxState

func (s *states) Type() string { return "STATES" }

func (s *states) String() string {
	words := make([]string, len(*s))
	for i, state := range *s {
		words[i] = string(state)
	}
	return strings.Join(words, ",")
}

func (s *states) Set(value string) error {
	for word := range strings.SplitSeq(value, ",") {
		state := api.SandboxState(word)
		if state != api.StateRunning && state != api.StatePaused {
			return errors.New("want running, paused, or both with a comma between")
		}
		if !slices.Contains(*s, state) {
			*s = append(*s, state)
		}
	}
	return nil
}

// pauseMode is a flag value that accepts the part of a sandbox's state that a pause keeps.
type pauseMode sandbox.PauseMode

func (m *pauseMode) Type() string   { return "full|filesystem" }
func (m *pauseMode) String() string { return string(*m) }

func (m *pauseMode) Set(value string) error {
	switch mode := sandbox.PauseMode(value); mode {
	case sandbox.PauseFull, sandbox.PauseFilesystem:
		*m = pauseMode(mode)
		return nil
	}
	return errors.New("want full or filesystem")
}

// onTimeout is a flag value that accepts the action at the end of a sandbox's lifetime.
type onTimeout sandbox.OnTimeout

func (o *onTimeout) Type() string   { return "kill|pause" }
func (o *onTimeout) String() string { return string(*o) }

func (o *onTimeout) Set(value string) error {
	switch action := sandbox.OnTimeout(value); action {
	case sandbox.OnTimeoutKill, sandbox.OnTimeoutPause:
		*o = onTimeout(action)
		return nil
	}
	return errors.New("want kill or pause")
}
