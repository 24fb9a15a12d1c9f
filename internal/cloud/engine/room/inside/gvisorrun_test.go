//go:build linux

package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestBundle compares the description of a sandbox for gVisor, and the flags of runsc, with
// testdata/bundle.txt, which UPDATE_BUNDLE=1 writes.
func TestBundle(t *testing.T) {
	t.Parallel()
	const golden = "testdata/bundle.txt"
	var text strings.Builder
	for _, spec := range []*wire.EnvdSpec{{Runner: wire.Runner{Ranged: true}, Hostname: "own", Network: true}, {Hostname: "own"}} {
		raw, err := json.MarshalIndent(bundleOf(spec), "", " ")
		must.Do(t, err)
		flags := runscFlags(spec)
		last := len(flags) - 1
		fmt.Fprintf(&text, "ranged and with a network: %v\n%s\n%s\n", spec.Ranged, strings.Join(flags[:last], "\n"), raw)
		var files unix.Rlimit
		must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
		if want := fmt.Sprintf("--dcache=%d", files.Max/8); flags[last] != want {
			t.Errorf("got the flag %s, want %s", flags[last], want)
		}
	}
	if os.Getenv("UPDATE_BUNDLE") != "" {
		must.Do(t, os.WriteFile(golden, []byte(text.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	must.Do(t, err)
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("the description has changed (-file +now):\n%s", diff)
	}
}

// TestRunscCommands runs a sandbox of gVisor, saves its memory and lets it end, and checks each command.
func TestRunscCommands(t *testing.T) { //nolint:paralleltest // it handles signals
	dir := t.TempDir() + "/saved"
	must.Do(t, os.Mkdir(dir, 0o700))
	memory, err := os.Open(dir)
	must.Do(t, err)
	defer memory.Close()
	r := gvisorRun{spec: wire.EnvdSpec{Runner: wire.Runner{Ranged: true}, Hostname: "own", Egress: true, Network: true}, kills: 3}
	again := 0 // commands that were repeated
	r.server = func(s *runscServer) error {
		if err := r.begin(s, `{"version":2,"id":"own","config":{"own":1},"egress":true,"room":{"hostname":"own","ranged":true}}`); err != nil {
			return err
		}
		one := func(kind wire.Kind, want string) func() error {
			return func() error { return s.asks(wire.Message{Kind: kind}, nil, want) }
		}
		save := func(id uint64, want string) func() error {
			return func() error {
				return s.asks(wire.Message{Kind: wire.KindSaveMemory, ID: id}, wire.Lent(wire.FileMemory, memory), want)
			}
		}
		for n, do := range []func() error{
			s.works, save(1, "its processes run"), one(wire.KindGoOn, ""),
			s.marked("no pause", one(wire.KindStop, "runsc pause: exit status 1: no pause")), s.works,
			func() error {
				err := one(wire.KindStop, "")()
				for err == nil && save(2, errParkTimeout.Error())() == nil { // on a busy machine
					again++
					err = errors.Join(one(wire.KindGoOn, "")(), one(wire.KindStop, "")())
				}
				return err
			},
			one(wire.KindStop, ""), one(wire.KindSaveMemory, `envd broke the protocol: the file "memory" is missing`), save(5, ""),
			s.marked("no checkpoint", save(3, "runsc checkpoint: exit status 1: no checkpoint")),
			s.marked("slow checkpoint", func() error {
				err := s.SendFiles(wire.Message{Kind: wire.KindSaveMemory, ID: 4}, wire.Lent(wire.FileMemory, memory))
				s.noted(t, 7+2*again)
				err = errors.Join(err, s.Send(wire.Message{Kind: wire.KindGiveUp, ID: 3}), s.Send(wire.Message{Kind: wire.KindGiveUp, ID: 4}))
				return errors.Join(err, s.answers(wire.KindSaveMemory, "runsc checkpoint: signal: killed: "))
			}),
			s.marked("no resume", one(wire.KindGoOn, "runsc resume: exit status 1: no resume")),
			one(wire.KindGoOn, ""), one(wire.KindGoOn, ""), s.works,
			func() error { return s.last(1) },
		} {
			if err := do(); err != nil {
				return fmt.Errorf("step %d: %w", n, err)
			}
		}
		return nil
	}
	calls, err := r.run(t)
	if !errors.Is(err, errRunscEnded) || err.Error() != "gVisor ended: it broke" {
		t.Errorf("got error %v", err)
	}
	flags := strings.Join(runscFlags(&r.spec), " ")
	flags = flags[:strings.LastIndex(flags, " --dcache=")]
	command := func(name, file, own string) string {
		return fmt.Sprintf("%s, environment [PATH=/], leads true, file %s, %s %ssandbox\n", name, file, flags, own)
	}
	const save = "--leave-running --image-path=/proc/self/fd/3 "
	want := command("run", ".", "--bundle=/gvisor/bundle ") + command("pause", ".", "") + strings.Repeat(command("pause", ".", "")+command("resume", ".", ""), again) +
		command("pause", ".", "") + strings.Repeat(command("checkpoint", "saved", save), 4) + command("resume", ".", "") + command("resume", ".", "")
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("the commands (-want +got):\n%s", diff)
	}
}

// TestEndsOfRunsc checks the reason with which the envd of a sandbox of gVisor ends.
func TestEndsOfRunsc(t *testing.T) { //nolint:paralleltest // it handles signals
	none := func(*runscServer) error { return nil }
	end := func(spec wire.EnvdSpec, port uint16) func(*runscServer) error {
		return func(s *runscServer) error {
			names := ""
			if spec.Names != nil {
				names = `,"names":{"a.test":"10.0.0.1"}`
			}
			err := gvisorRun{spec: spec}.begin(s, fmt.Sprintf(`{"version":2,"id":%q,"config":{"own":1},"egress":false,"room":{"hostname":%[1]q,"ranged":false%s}}`, spec.Hostname, names))
			if err != nil || port == 0 {
				return err
			}
			return s.last(port)
		}
	}
	named := wire.EnvdSpec{Hostname: "own", Names: map[string]netip.Addr{"a.test": netip.MustParseAddr("10.0.0.1")}}
	restored := wire.EnvdSpec{Restored: true}
	for name, tt := range map[string]struct {
		run  gvisorRun
		want string
		call string // the last
	}{
		"without runsc":    {gvisorRun{lacks: wire.FileRunsc, server: none}, `start gVisor: envd broke the protocol: the file "runsc" is missing`, ""},
		"without memory":   {gvisorRun{spec: restored, lacks: wire.FileMemory, server: none}, `start gVisor: envd broke the protocol: the file "memory" is missing`, ""},
		"one that fails":   {gvisorRun{marks: []string{"no run"}, server: none}, "start gVisor: begin a tunnel with it: EOF: no run", "run"},
		"one that breaks":  {gvisorRun{spec: named, server: end(named, 1)}, "gVisor ended: it broke", "run"},
		"one that panics":  {gvisorRun{server: end(wire.EnvdSpec{}, 2)}, "gVisor ended: panic: " + strings.Repeat("x", maxHead-len("panic: ")), "run"},
		"without a server": {gvisorRun{server: end(wire.EnvdSpec{}, 0)}, "EOF", "run"},
		"restored":         {gvisorRun{spec: restored, server: end(restored, 1)}, "gVisor ended: it broke", "restore"},
	} {
		calls, err := tt.run.run(t)
		if got := fmt.Sprint(err); !strings.HasSuffix(got, tt.want) || len(got) > len(tt.want)+50 || !strings.HasPrefix(calls, tt.call) || strings.Count(calls, "\n") > 1 {
			t.Errorf("%s: got error %v after %s, want %s", name, err, calls, tt.want)
		}
		if restores := strings.Contains(calls, "file memory, ") && strings.HasSuffix(calls, " --bundle=/gvisor/bundle --image-path=/proc/self/fd/3 sandbox\n"); restores != (tt.call == "restore") {
			t.Errorf("%s: it was called as %s", name, calls)
		}
	}
}
