//go:build linux

package child

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"testing"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	kills := 0
	m := &Memory{Limit: 3 << 29, Kills: func() int { return kills }}
	tests := []struct {
		script string
		kills  int
		want   string
	}{
		{"kill -KILL $$", 1, "out of memory: the sandbox's limit is 1536 MiB"},
		{"exit 137", 1, "out of memory: the sandbox's limit is 1536 MiB"},
		{"kill -KILL $$", 0, ""},
		{"kill -TERM $$", 1, ""},
		{"exit 1", 1, ""},
		{"exit 0", 1, ""},
	}
	for _, tt := range tests {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", tt.script)
		verdict, none := m.Watch(), (*Memory)(nil).Watch()
		_ = cmd.Run() // its state says how it ended
		kills += tt.kills
		err := verdict(cmd.ProcessState)
		if got := fmt.Sprint(err); got != cmp.Or(tt.want, "<nil>") {
			t.Errorf("%s with %d kills: got %s, want %s", tt.script, tt.kills, got, tt.want)
		}
		if err != nil && !errors.Is(err, ErrOutOfMemory) {
			t.Errorf("%s with %d kills: got %v, want ErrOutOfMemory", tt.script, tt.kills, err)
		}
		if err := none(cmd.ProcessState); err != nil {
			t.Errorf("without a limit: %v", err)
		}
	}
	for n, want := range map[uint64]string{0: "0 bytes", 1000: "1000 bytes", 1 << 10: "1 KiB", 2 << 30: "2 GiB", 1 << 50: "1024 TiB"} {
		if got := size(n); got != want {
			t.Errorf("%d bytes are %s, want %s", n, got, want)
		}
	}
}

// TestSetLimit checks that a changed limit is the one that is told, and that there may be no limit.
func TestSetLimit(t *testing.T) {
	t.Parallel()
	kills := 0
	m := &Memory{Limit: 1 << 20, Kills: func() int { kills++; return kills }}
	verdict := m.Watch()
	m.SetLimit(5 << 10)
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "exit 137")
	_ = cmd.Run() // its state says how it ended
	if got, want := fmt.Sprint(verdict(cmd.ProcessState)), "out of memory: the sandbox's limit is 5 KiB"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := verdict(nil); err != nil {
		t.Errorf("without a state: got %v", err)
	}
	(*Memory)(nil).SetLimit(1)
	if err := (&Memory{}).Watch()(cmd.ProcessState); err != nil {
		t.Errorf("without a count: got %v", err)
	}
}

// TestCount checks that only the kills since its call are counted.
func TestCount(t *testing.T) {
	t.Parallel()
	kills := 3
	count := (&Memory{Kills: func() int { return kills }}).Count()
	for want := range 3 {
		if got := count(); got != want {
			t.Errorf("got %d kills, want %d", got, want)
		}
		kills++
	}
	for _, m := range []*Memory{nil, {}} {
		if got := m.Count()(); got != 0 {
			t.Errorf("without a count: got %d kills", got)
		}
	}
}
