package main

import (
	"bufio"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/state"
)

// load reads a file written by save. If the file does not exist, load returns the state before the
// first epoch.
func load(file string) (*state.State, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return beginning()
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return state.Load(bufio.NewReader(f), state.Bounds{})
}

// save replaces the file atomically. Even if this program is killed during save, the file contains
// one complete state, either the old or the new one.
func save(file string, st *state.State) (err error) {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = st.WriteTo(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// point is a row of the table of points. The line is fitted to these points.
type point struct {
	X float64 `py:"x"`
	Y float64 `py:"y"`
}

// beginning returns the state before the first epoch: points near y = 3x - 1, and a line that
// is not fitted yet.
func beginning() (*state.State, error) {
	random := rand.New(rand.NewPCG(1, 2))
	points := make([]point, 10_000)
	for i := range points {
		x := random.NormFloat64()
		points[i] = point{x, 3*x - 1 + 0.1*random.NormFloat64()}
	}
	table, err := state.TableOf(points)
	if err != nil {
		return nil, err
	}
	line, err := state.ArrayOf([]float64{0, 0})
	if err != nil {
		return nil, err
	}
	st := state.New()
	for name, value := range map[string]any{"points": table, "line": line, "losses": []float64{}, "done": 0} {
		if err := st.Set(name, value); err != nil {
			return nil, err
		}
	}
	return st, nil
}
