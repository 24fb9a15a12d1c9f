package lifecycle_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

var reboot = lifecycle.ResumeOptions{Lifetime: time.Hour, DropMemory: true}

// remember starts a server whose engine saves memory. dir is the directory of its store.
func remember(t *testing.T, dir string, change ...func(*lifecycle.Options)) *server {
	t.Helper()
	v := serve(t, dir, change...)
	v.fakes.SavesMemory = true
	return v
}

// taught creates a sandbox, and writes to its files and its memory.
func (v *server) taught(t *testing.T, change ...func(*lifecycle.Request)) string {
	t.Helper()
	id := v.create(t, change...)
	v.teach(id, "before")
	return id
}

func (v *server) teach(id, what string) {
	f := v.fakes.Fake(id)
	f.Write("files " + what)
	f.Learn("memory " + what)
}

// wantTaught checks the contents of a sandbox's files and memory.
func (v *server) wantTaught(t *testing.T, id, files, memory string) {
	t.Helper()
	f := v.fakes.Fake(id)
	if f.Files() != files || f.Knows() != memory {
		t.Errorf("got the files %q and the memory %q, want %q and %q", f.Files(), f.Knows(), files, memory)
	}
}

// wantDirs checks the number of directories in the store.
func (v *server) wantDirs(t *testing.T, want int) {
	t.Helper()
	v.store.Wait()
	var all []string
	for _, parent := range []string{"files", "new", "trash"} {
		names, err := filepath.Glob(filepath.Join(v.dir, parent, "*"))
		must.Do(t, err)
		all = append(all, names...)
	}
	if len(all) != want {
		t.Errorf("got the directories %q, want %d", all, want)
	}
}

// TestSavedMemory checks that a sandbox that was paused with its memory still has this memory in
// the next server, if the engine can save it.
func TestSavedMemory(t *testing.T) {
	t.Parallel()
	silent := func(v *server) { v.fail(lifecycletest.Healthy, errors.New("silent")) }
	for name, tt := range map[string]struct {
		change func(*lifecycle.Request)
		set    func(v *server)
		pause  func(t *testing.T, v *server, id string) // nil: Close of the server pauses the sandbox
		memory bool
	}{
		"with memory":                           {nil, nil, pauseFull, true},
		"without memory":                        {nil, nil, pauseFiles, false},
		"by its timeout":                        {autoPause, nil, expire, true},
		"by its timeout, without memory":        {dropMemory, nil, expire, false},
		"at the end":                            {autoPause, nil, nil, true},
		"at the end, without memory":            {dropMemory, nil, nil, false},
		"envd does not answer":                  {nil, silent, pauseFull, false},
		"at the end, envd does not answer":      {autoPause, silent, nil, false},
		"an engine that cannot":                 {nil, func(v *server) { v.fakes.SavesMemory = false }, pauseFull, false},
		"at the end, an engine that cannot":     {autoPause, func(v *server) { v.fakes.SavesMemory = false }, nil, false},
		"an engine that cannot freeze":          {autoPause, lacks(engine.Pauses), expire, true},
		"an engine that cannot freeze, the end": {autoPause, lacks(engine.Pauses), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			v := remember(t, dir)
			id := v.taught(t, func(q *lifecycle.Request) {
				if tt.change != nil {
					tt.change(q)
				}
			})
			if tt.set != nil {
				tt.set(v)
			}
			if tt.pause != nil {
				tt.pause(t, v, id)
			}
			v.end(t)

			v = remember(t, dir)
			if sb := v.get(t, id); sb.State != lifecycle.Paused || sb.Memory != tt.memory || sb.Unresponsive {
				t.Fatalf("after a restart: got %+v, want it paused, memory %v", sb, tt.memory)
			}
			lost := strings.Contains(v.log.String(), "ended with the local cloud")
			if frozen := tt.pause != nil && name != "without memory" && name != "by its timeout, without memory"; lost != (frozen && !tt.memory) {
				t.Errorf("logged that its memory is lost: %v, want it if it is so", lost)
			}
			want := ""
			if tt.memory {
				want = "memory before"
			}
			resume(t, v, id)
			v.wantTaught(t, id, "files before", want)
			if got := v.fakes.Spec(id).Memory != ""; got != tt.memory {
				t.Errorf("launched with memory: %v, want %v", got, tt.memory)
			}
			kill(t, v, id)
			v.wantDirs(t, 0)
			v.end(t)
		})
	}
}

func expire(_ *testing.T, v *server, _ string) { v.Advance(time.Hour) }

func lacks(f engine.Feature) func(*server) {
	return func(v *server) { v.fakes.Lacks = map[engine.Feature]string{f: "it cannot"} }
}

// TestResumeSavedMemory checks resumes after a restart: with the memory, by a call or by a request
// to the sandbox, and without the memory. The sandbox may end any number of times meanwhile.
func TestResumeSavedMemory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		v := remember(t, dir)
		id := v.taught(t)
		pauseFull(t, v, id)
		v.crash(t)
		_ = v.Close()
		v = remember(t, dir)
		for i, do := range []struct {
			resume func() error
			memory string
		}{
			{func() error { return v.Wake(t.Context(), id) }, "memory before"},
			{func() error { _, err := v.Resume(t.Context(), id, reboot); return err }, ""},
			{func() error { _, err := v.Resume(t.Context(), id, day); return err }, "memory before"},
			{func() error { _, _, err := v.Connect(t.Context(), id, day); return err }, "memory before"},
		} {
			must.Do(t, do.resume())
			v.wantTaught(t, id, "files before", do.memory)
			if sb := v.get(t, id); !sb.Runs() || sb.Memory {
				t.Errorf("%d: resumed: got %+v", i, sb)
			}
			v.teach(id, "lost")
			v.fakes.Fake(id).Die(errors.New("broken"))
			synctest.Wait()
			if sb := v.get(t, id); sb.State != lifecycle.Paused || !sb.Memory {
				t.Errorf("%d: died: got %+v, want what it was at its pause, with its memory", i, sb)
			}
		}
		v.end(t)
	})
}

// TestUnresponsive checks that a sandbox whose envd did not answer at a pause cannot be resumed
// with its frozen processes. Once these have ended, it can be resumed from the store.
func TestUnresponsive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := remember(t, t.TempDir())
		id := v.taught(t)
		v.fail(lifecycletest.Healthy, errors.New("silent"))
		pauseFull(t, v, id)
		if _, err := v.Resume(t.Context(), id, day); !v.get(t, id).Unresponsive || !errors.Is(err, lifecycle.ErrUnresponsive) {
			t.Errorf("got %+v and error %v, want that it cannot be resumed", v.get(t, id), err)
		}
		v.fail(lifecycletest.Healthy, nil)
		v.fakes.Fake(id).Die(errors.New("broken"))
		synctest.Wait()
		if sb := v.get(t, id); sb.State != lifecycle.Paused || sb.Unresponsive || sb.Memory {
			t.Errorf("got %+v, want it paused as the store has it", sb)
		}
		resume(t, v, id)
		v.wantTaught(t, id, "files before", "")
		v.end(t)
	})
}

// TestSavedMemoryWhileFrozen checks that a resume uses the frozen processes. It uses the memory in
// the store only once these processes have ended.
func TestSavedMemoryWhileFrozen(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before func(t *testing.T, v *server, f *lifecycletest.Fake)
		o      lifecycle.ResumeOptions
		same   bool
		memory string
	}{
		"resumed":            {nil, day, true, "memory before"},
		"died":               {func(_ *testing.T, _ *server, f *lifecycletest.Fake) { f.Die(errors.New("broken")) }, day, false, "memory before"},
		"died, without it":   {func(_ *testing.T, _ *server, f *lifecycletest.Fake) { f.Die(errors.New("broken")) }, reboot, false, ""},
		"without its memory": {nil, reboot, false, ""},
		"without its memory, and that fails": {func(t *testing.T, v *server, _ *lifecycletest.Fake) {
			t.Helper()
			v.fakes.Fail(errors.New("no room"))
			_, err := v.Resume(t.Context(), v.List(everything)[0].ID, reboot)
			if _, failed := errors.AsType[*lifecycle.LaunchError](err); !failed {
				t.Errorf("got error %v, want a *LaunchError", err)
			}
			v.fakes.Fail(nil)
		}, day, false, "memory before"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				v := remember(t, dir, func(o *lifecycle.Options) { o.MaxFrozen = 1 })
				id := v.taught(t)
				pauseFull(t, v, id)
				f := v.fakes.Fake(id)
				if tt.before != nil {
					tt.before(t, v, f)
					synctest.Wait()
				}
				if sb := v.get(t, id); sb.State != lifecycle.Paused || !sb.Memory {
					t.Fatalf("got %+v, want it paused with its memory", sb)
				}
				_, err := v.Resume(t.Context(), id, tt.o)
				must.Do(t, err)
				if (v.fakes.Fake(id) == f) != tt.same || f.Ended() == tt.same {
					t.Errorf("the same instance: %v, ended: %v, want %v", v.fakes.Fake(id) == f, f.Ended(), tt.same)
				}
				v.wantTaught(t, id, "files before", tt.memory)
				pauseFull(t, v, id) // there is room for it
				kill(t, v, id)
				v.wantDirs(t, 0)
				v.end(t)
			})
		})
	}
}

// TestSavedMemoryBeyondLimit checks that saved memory is kept only in the store if it would exceed
// MaxFrozenMemory.
func TestSavedMemoryBeyondLimit(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]func(t *testing.T, v *server, id string){"asked for": pauseFull, "by its timeout": expire} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := remember(t, t.TempDir(), func(o *lifecycle.Options) { o.MaxFrozenMemory = 1000 })
			id := v.taught(t, autoPause)
			v.fakes.Fake(id).Use(2000)
			first := v.fakes.Fake(id)
			pause(t, v, id)
			if sb := v.get(t, id); sb.State != lifecycle.Paused || !sb.Memory || !first.Ended() {
				t.Errorf("got %+v, ended: %v, want it paused, with its memory and without processes", sb, first.Ended())
			}
			must.Do(t, v.Wake(t.Context(), id))
			v.wantTaught(t, id, "files before", "memory before")
			v.end(t)
		})
	}
}

// TestSaveMemoryFails checks that memory that cannot be saved leaves nothing behind. A requested
// pause then fails, and any other pause keeps only the files.
func TestSaveMemoryFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("it has a device open")
	for name, fails := range map[string]func(v *server){
		"at once": func(v *server) { v.fail(lifecycletest.SaveMemory, broken) },
		"never":   func(v *server) { v.hold(lifecycletest.SaveMemory) },
	} {
		for how, pause := range map[string]func(t *testing.T, v *server, id string){"asked for": nil, "timeout": expire, "end": func(*testing.T, *server, string) {}} {
			if name == "never" && how != "end" { // they have no deadline
				continue
			}
			t.Run(how+" "+name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					v := remember(t, dir, func(o *lifecycle.Options) { o.MaxFrozen, o.MaxKept = 1, 1 })
					id := v.taught(t, autoPause)
					fails(v)
					if pause == nil {
						err := v.Pause(t.Context(), id, lifecycle.PauseOptions{})
						if _, failed := errors.AsType[*lifecycle.SaveError](err); !failed || !errors.Is(err, lifecycle.ErrMemory) || !errors.Is(err, broken) {
							t.Errorf("got error %v, want a *SaveError about the memory", err)
						}
						if sb := v.get(t, id); !sb.Runs() || v.fakes.Fake(id).Paused() {
							t.Errorf("got %+v, want it to run on", sb)
						}
						v.wantDirs(t, 0)
						v.fail(lifecycletest.SaveMemory, nil)
						pauseFull(t, v, id) // there is room for it
						kill(t, v, id)
						v.end(t)
						return
					}
					pause(t, v, id)
					begun := time.Now()
					v.end(t)
					if took := time.Since(begun); took > 30*time.Second {
						t.Errorf("it took %v, which leaves no time for the files", took)
					}
					if !strings.Contains(v.log.String(), "sandbox paused without its memory, which cannot be saved") {
						t.Errorf("logged %s, want why it has no memory", v.log.String())
					}
					if found, err := filepath.Glob(filepath.Join(dir, "files", "*", "*")); err != nil || len(found) != 1 || filepath.Base(found[0]) != "files" {
						t.Errorf("got %q and error %v, want only its files", found, err)
					}
					v = remember(t, dir)
					if sb := v.get(t, id); sb.State != lifecycle.Paused || sb.Memory {
						t.Errorf("got %+v, want it paused without its memory", sb)
					}
					v.end(t)
				})
			})
		}
	}
}

// TestOtherMachine checks that a resume is refused if this machine cannot restore the memory, and
// that the remedy in the error works.
func TestOtherMachine(t *testing.T) {
	t.Parallel()
	other := fmt.Errorf("gvisor: %w: it was saved with another processor", engine.ErrOtherMachine)
	wantRefused := func(t *testing.T, err error, remedy string) {
		t.Helper()
		refused, ok := errors.AsType[*lifecycle.RefusedError](err)
		if !ok || !strings.Contains(refused.Reason, remedy) || !strings.Contains(refused.Reason, "another processor") {
			t.Errorf("got error %v, want a *RefusedError with the reason and %q", err, remedy)
		}
	}
	dir := t.TempDir()
	v := remember(t, dir, shared)
	id := v.taught(t)
	made, err := v.Snapshot(t.Context(), id, nil)
	must.Do(t, err)
	pauseFull(t, v, id)
	v.fakes.Fail(other)
	_, err = v.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour, Layers: made.Layers})
	wantRefused(t, err, "make the snapshot anew on this machine")
	v.layers.Release(made.Layers...)
	wantLayers(t, v, 0)
	v.end(t)

	v = remember(t, dir, shared)
	v.fakes.Fail(other)
	_, _, err = v.Connect(t.Context(), id, day)
	wantRefused(t, err, "resume it with memory false (e2bctl resume --reboot)")
	if sb := v.get(t, id); sb.State != lifecycle.Paused || !sb.Memory {
		t.Errorf("got %+v, want it paused as before", sb)
	}
	v.fakes.Fail(nil)
	if _, _, err := v.Connect(t.Context(), id, reboot); err != nil {
		t.Fatal(err)
	}
	v.wantTaught(t, id, "files before", "")
	v.end(t)
}

// TestMemoryOfSnapshots checks that sandboxes made from a snapshot or a fork continue with the
// source's memory, unless they are requested without it. Several of them can begin with the same
// memory at once.
func TestMemoryOfSnapshots(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		memory *bool
		set    func(v *server)
		want   bool
		err    string // text of the error; "": none
	}{
		"by default":                           {nil, nil, true, ""},
		"asked for":                            {new(true), nil, true, ""},
		"not wanted":                           {new(false), nil, false, ""},
		"an engine that cannot":                {nil, func(v *server) { v.fakes.SavesMemory = false }, false, ""},
		"asked for, an engine that cannot":     {new(true), func(v *server) { v.fakes.SavesMemory = false }, false, "memory false) keeps the files"},
		"envd does not answer":                 {nil, func(v *server) { v.fail(lifecycletest.Healthy, errors.New("silent")) }, false, ""},
		"asked for, envd does not answer":      {new(true), func(v *server) { v.fail(lifecycletest.Healthy, errors.New("silent")) }, false, "envd in the sandbox does not answer"},
		"it cannot be saved":                   {nil, func(v *server) { v.fail(lifecycletest.SaveMemory, errors.New("no space")) }, false, "its memory: no space"},
		"not wanted, where it cannot be saved": {new(false), func(v *server) { v.fail(lifecycletest.SaveMemory, errors.New("no space")) }, false, ""},
	} {
		for _, sharing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, shared %v", name, sharing), func(t *testing.T) {
				t.Parallel()
				testMemoryOfSnapshots(t, sharing, tt.memory, tt.want, tt.set, tt.err)
			})
		}
	}
}

func testMemoryOfSnapshots(t *testing.T, sharing bool, memory *bool, want bool, set func(*server), wantErr string) {
	t.Helper()
	v := remember(t, t.TempDir(), func(o *lifecycle.Options) {
		if sharing {
			shared(o)
		}
	})
	id := v.taught(t)
	if set != nil {
		set(v)
	}
	made, err := v.Snapshot(t.Context(), id, memory)
	forks, errOfFork := v.Fork(t.Context(), id, 3, time.Hour, memory)
	if wantErr != "" {
		for _, err := range []error{err, errOfFork} {
			if err == nil || !strings.Contains(err.Error(), wantErr) {
				t.Errorf("got error %v, want %q", err, wantErr)
			}
		}
		if sb := v.get(t, id); !sb.Runs() {
			t.Errorf("got %+v, want it to run on", sb)
		}
		wantLayers(t, v, 0)
		v.wantDirs(t, 0)
		v.end(t)
		return
	}
	if err != nil || errOfFork != nil || made.Memory != want {
		t.Fatalf("got %+v and errors %v and %v, want memory %v", made, err, errOfFork, want)
	}
	knows := ""
	if want {
		knows = "memory before"
	}
	v.teach(id, "after")
	children := make([]string, 0, len(forks))
	for _, fork := range forks {
		if fork.Err != nil || fork.Memory != want {
			t.Fatalf("got the child %+v, want memory %v", fork, want)
		}
		children = append(children, fork.Sandbox.ID)
	}
	for range 2 {
		sb, err := v.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour, Layers: made.Layers})
		must.Do(t, err)
		children = append(children, sb.ID)
	}
	for _, child := range children {
		v.wantTaught(t, child, "files before", knows)
		if sb := v.get(t, child); slices.Contains(sb.Layers, made.Layers[len(made.Layers)-1]) && want {
			t.Errorf("got the layers %q of %q, want no memory among them", sb.Layers, made.Layers)
		}
	}
	// The children of the fork share its layers; the snapshot has its own.
	left := len(made.Layers)
	if sharing {
		left++
	}
	wantLayers(t, v, left)
	for _, child := range children {
		kill(t, v, child)
	}
	v.layers.Release(made.Layers...)
	wantLayers(t, v, 0)
	v.end(t)
}

// TestOlderRecord checks that a record of an older program, which saved no memory, is read as a
// record without memory.
func TestOlderRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := remember(t, dir)
	id := v.taught(t)
	pauseFull(t, v, id)
	all, err := v.store.Records(store.Sandboxes)
	if err != nil || len(all) != 1 {
		t.Fatalf("got %v and error %v", all, err)
	}
	var fields map[string]any
	must.Do(t, json.Unmarshal(all[0].Value, &fields))
	if fields["Version"] != 1.0 || fields["Memory"] != true || fields["SavedMemory"] != true {
		t.Errorf("got the record %s", all[0].Value)
	}
	if _, err := os.Stat(filepath.Join(all[0].Dir, "files")); err != nil { // other programs look for it there
		t.Error(err)
	}
	delete(fields, "SavedMemory")
	value, err := json.Marshal(fields)
	if err == nil {
		_, err = v.store.Put(store.Sandboxes, id, value, all[0].Dir)
	}
	must.Do(t, err)
	v.crash(t)
	v = remember(t, dir)
	if sb := v.get(t, id); sb.Memory || !strings.Contains(v.log.String(), "ended with the local cloud") {
		t.Errorf("got %+v, want it without its memory, and that logged", sb)
	}
	resume(t, v, id)
	v.wantTaught(t, id, "files before", "")
	v.end(t)
}
