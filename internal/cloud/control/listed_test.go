package control

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// An element of a list is written by hand, and must stay what its fields and their tags say.
func TestListedIsWrittenAsJSON(t *testing.T) {
	t.Parallel()
	full := listed{
		TemplateID: "t", SandboxID: "i1", ClientID: "c", Alias: "a<b>&\"\\\n\u2028ä\xff", StartedAt: time.Date(2026, 11, 2, 10, 0, 0, 120_000_000, time.UTC),
		EndAt: time.Date(2026, 11, 2, 10, 5, 0, 0, time.FixedZone("", 5400)), CPUCount: 2, MemoryMB: 512, DiskSizeMB: 1 << 20, State: stateRunning, EnvdVersion: "0.2.0",
		Metadata: map[string]string{"b": "2", "a": "<1>"}, VolumeMounts: []volumeMount{{"v", "/v"}}, Unresponsive: true,
	}
	for i, fields := 0, reflect.ValueOf(full); i < fields.NumField(); i++ {
		if fields.Field(i).IsZero() {
			t.Errorf("the test does not set %s", fields.Type().Field(i).Name)
		}
	}
	for _, l := range []listed{full, {VolumeMounts: []volumeMount{}}} {
		want, err := json.Marshal(l)
		must.Do(t, err)
		if got := l.append(nil); string(got) != string(want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// One element needs no memory of its own while its list is written.
func TestListedAllocatesNothing(t *testing.T) {
	l := listed{TemplateID: "base", SandboxID: "i1", ClientID: "c", Alias: "base", StartedAt: time.Now(), EndAt: time.Now(), State: stateRunning}
	to := make([]byte, 0, usualListed)
	if got := testing.AllocsPerRun(10, func() { _ = l.append(to) }); got > 0 {
		t.Errorf("writing an element takes %v allocations, want none", got)
	}
}
