package agent

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// BenchmarkBegin64MiB sends 64 MiB of state into a kernel, and begins again without a Set in between.
func BenchmarkBegin64MiB(b *testing.B) {
	floats := make([]float64, 4<<20)
	for i := range floats {
		floats[i] = float64(i) / 3
	}
	st := state.New()
	h := newPythonHost(b, "plain")
	begin := func(rs *runs) {
		r, err := rs.begin(b.Context(), h, "kernel", Params{State: st})
		must.Do(b, err)
		r.Close()
	}
	begin(&runs{}) // installs the modules
	b.Run("set and send", func(b *testing.B) {
		for b.Loop() {
			set(b, st, "floats", floats)
			set(b, st, "blob", make([]byte, 32<<20))
			begin(&runs{})
		}
	})
	b.Run("array set and send", func(b *testing.B) {
		data := make([]float64, 8<<20)
		for b.Loop() {
			array, err := state.ArrayOf(data)
			must.Do(b, err)
			array.Data[0]++ // different content
			set(b, st, "floats", array)
			set(b, st, "blob", nil)
			begin(&runs{})
		}
	})
	b.Run("array pull", func(b *testing.B) {
		var rs runs
		for b.Loop() {
			r, err := rs.begin(b.Context(), h, "kernel", Params{State: st})
			must.Do(b, err)
			mustExec(b, r, "floats[5] += 1")
			must.Do(b, r.Pull(b.Context(), st))
			r.Close()
		}
	})
	set(b, st, "blob", make([]byte, 32<<20))
	var rs runs
	begin(&rs)
	b.Run("set again", func(b *testing.B) {
		before := h.sent
		for b.Loop() {
			set(b, st, "blob", make([]byte, 32<<20))
			begin(&rs)
		}
		b.ReportMetric(float64(h.sent-before)/float64(b.N), "wire-B/op")
	})
	b.Run("again", func(b *testing.B) {
		before := h.sent
		for b.Loop() {
			begin(&rs)
		}
		b.ReportMetric(float64(h.sent-before)/float64(b.N), "wire-B/op")
	})
}
