//go:build linux

package gvisor_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/gvisor"
	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv"
	"github.com/e2bctl/e2bctl/internal/must"
)

// fakeRoom is a room whose sandboxes do nothing. It has an error for each of its calls.
type fakeRoom struct {
	engine.Engine

	start, end, save, closing error
	lacks                     engine.Feature
	notes                     []string

	calls string
}

func (f *fakeRoom) NewSandbox(_ context.Context, o engine.SandboxOptions) (engine.Sandbox, error) {
	f.calls += " start " + o.ID
	if f.start != nil {
		return nil, f.start
	}
	return fakeSandbox{room: f}, nil
}

func (f *fakeRoom) Close() error {
	f.calls += " close"
	return f.closing
}

func (f *fakeRoom) Report() engine.Report {
	promises := engine.Everything()
	promises[engine.SavedMemory] = "a room saves none"
	promises[f.lacks] = "no"
	f.notes = []string{"a note", "another"}
	return engine.Report{Engine: engine.Room, Promises: promises, Notes: f.notes[:1], Pause: "a group", Processes: "64", Memory: "2 GiB"}
}

type fakeSandbox struct {
	engine.Sandbox

	room *fakeRoom
}

func (s fakeSandbox) Close() error {
	s.room.calls += " end"
	return s.room.end
}

func (s fakeSandbox) SaveMemory(context.Context, string) error {
	s.room.calls += " save"
	return s.room.save
}

// life starts an engine and a sandbox, from saved memory if there is any, and saves its memory to a directory.
func (f *fakeRoom) life(ctx context.Context, after fakeRoom, binary, from, to string) error {
	e, err := gvisor.New(ctx, f, gvisor.Options{Runsc: gvisorenv.Program{Path: "/runsc", Version: "runsc 1"}, Binary: binary, Programs: []string{"/proc/self/exe", "/none"}})
	if err != nil {
		return err
	}
	f.start, f.end, f.save = after.start, after.end, after.save
	s, err := e.NewSandbox(ctx, engine.SandboxOptions{ID: "own", Memory: from})
	if err != nil {
		return err
	}
	return errors.Join(s.SaveMemory(ctx, to), s.Close())
}

// TestEngineOfRoom checks the calls that reach the room, and the error of each one that fails.
func TestEngineOfRoom(t *testing.T) {
	t.Parallel()
	const trial, start = " start trial end", " start trial end start own"
	failure, other := errors.New("it failed"), errors.New("it cannot be closed")
	binary := filepath.Join(t.TempDir(), "binary")
	must.Do(t, os.WriteFile(binary, []byte("program"), 0o600))
	here := empty(t)
	must.Do(t, (&fakeRoom{}).life(t.Context(), fakeRoom{}, binary, "", here))
	machine, err := os.ReadFile(filepath.Join(here, "machine.json"))
	must.Do(t, err)
	if text := string(machine); !strings.Contains(text, `"Runsc":"runsc 1"`) || !strings.Contains(text, "/proc/self/exe") || strings.Contains(text, "/none") {
		t.Errorf("it saved the description %s", text)
	}
	for name, tt := range map[string]struct {
		room, after fakeRoom // during New, and after it
		binary      string
		saved       string // machine.json of the memory to restore
		full        bool   // the directory to save to has a machine.json
		calls       string
		is          error
		says        string // in the error
	}{
		"no trial":                 {room: fakeRoom{start: failure}, calls: " start trial close", is: failure, says: "gvisor: this machine does not run sandboxes in gVisor (runsc 1 at /runsc): it failed"},
		"no end of the trial":      {room: fakeRoom{end: failure, closing: other}, calls: trial + " close", is: other, says: "it failed"},
		"no start":                 {after: fakeRoom{start: failure}, calls: start, is: failure, says: "gvisor: it failed"},
		"saved":                    {calls: start + " save end"},
		"not saved":                {after: fakeRoom{save: failure}, calls: start + " save end", is: failure, says: "gvisor: it failed"},
		"saved already":            {full: true, calls: start + " save end", is: os.ErrExist, says: "gvisor: "},
		"saved, and no program":    {binary: binary + "x", calls: start + " end", is: os.ErrNotExist, says: "gvisor: "},
		"restored":                 {saved: string(machine), calls: start + " save end"},
		"restored, and no program": {binary: binary + "x", saved: string(machine), calls: trial, is: engine.ErrOtherMachine, says: binary + "x: no such file"},
		"restored elsewhere":       {saved: `{"Runsc":"runsc 2"}`, calls: trial, is: engine.ErrOtherMachine, says: "gvisor: " + engine.ErrOtherMachine.Error() + ": it was saved by runsc 2, and this is runsc 1"},
		"no JSON":                  {saved: "text", calls: trial, is: engine.ErrOtherMachine, says: "invalid character"},
	} {
		from, to := "", empty(t)
		if tt.saved != "" {
			from = empty(t)
			must.Do(t, os.WriteFile(filepath.Join(from, "machine.json"), []byte(tt.saved), 0o600))
		}
		if tt.full {
			must.Do(t, os.WriteFile(filepath.Join(to, "machine.json"), nil, 0o600))
		}
		err := tt.room.life(t.Context(), tt.after, cmp.Or(tt.binary, binary), from, to)
		if !errors.Is(err, tt.is) || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got error %v, want %v and %q", name, err, tt.is, tt.says)
		}
		if tt.room.calls != tt.calls {
			t.Errorf("%s: got the calls %s, want %s", name, tt.room.calls, tt.calls)
		}
	}
}

// TestReportOfRoom checks what the report of an engine has in place of the room's.
func TestReportOfRoom(t *testing.T) {
	t.Parallel()
	for lacks, processes := range map[engine.Feature]string{
		engine.ProcessLimit: "64", engine.Mounts: "64, of the threads of gVisor, which ends with its sandbox when it can have no more",
	} {
		room := &fakeRoom{lacks: lacks}
		e, err := gvisor.New(t.Context(), room, gvisor.Options{Runsc: gvisorenv.Program{Path: "/runsc", Version: "runsc 1"}})
		must.Do(t, err)
		want := room.Report()
		want.Engine, want.Processes, want.Pause = engine.GVisor, processes, "gVisor itself, which stops its processes"
		want.Promises[engine.SavedMemory] = ""
		want.Notes = []string{"a note", "sandboxes run in gVisor: runsc 1 at /runsc"}
		if diff := gocmp.Diff(want, e.Report()); diff != "" {
			t.Errorf("without %s (-want +got):\n%s", lacks, diff)
		}
		if room.notes[1] != "another" {
			t.Error("the report of the room has changed")
		}
	}
}
