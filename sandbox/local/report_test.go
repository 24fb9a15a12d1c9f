package local

import (
	"slices"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
)

// TestPythonNote checks that a note about this machine's Python is in the report of the engines
// that use this Python, and in no other.
func TestPythonNote(t *testing.T) {
	t.Parallel()
	const note = "it lacks pandas"
	for engine, want := range map[Engine]string{EngineRoom: note, EngineGVisor: note, EngineDocker: "", EngineWasm: "", "kubernetes": ""} {
		r := Report{Engine: engine}
		r.addPython(&pyenv.Env{Note: note})
		if r.PythonNote != want || slices.Contains(r.Notes, note) != (want != "") {
			t.Errorf("%s: got the note %q and the notes %q, want %q", engine, r.PythonNote, r.Notes, want)
		}
	}
}
