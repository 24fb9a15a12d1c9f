package code

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/privatedir"
)

const (
	maxCells     = 1000     // the maximum number of cells that the history keeps
	maxCellBytes = 64 << 10 // the size, in bytes, of the largest cell that the history keeps
)

// noHistory is a history of the line editor that keeps no lines.
type noHistory struct{}

func (noHistory) Add(string)    {}
func (noHistory) Len() int      { return 0 }
func (noHistory) At(int) string { panic("it is empty") }

// history contains the cells that the user typed, oldest first, including those of earlier runs of
// the command. The cells are also in a file that only this user can read, each as a line of JSON.
type history struct {
	noHistory // makes the editor's Add do nothing; the method keep adds whole cells instead

	cells []string
	path  string // the path of the file; "": there is no file
}

// openHistory reads the history of this user. If it returns an error, the history is empty and
// usable, but is not stored in a file.
func openHistory() (*history, error) {
	dir, err := privatedir.Make("history", privatedir.State)
	if err != nil {
		return &history{}, err
	}
	h := &history{path: filepath.Join(dir, "code")}
	file, err := os.Open(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return &history{}, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 8*maxCellBytes)
	read := 0
	for lines.Scan() {
		var cell string
		if read++; json.Unmarshal(lines.Bytes(), &cell) == nil {
			h.add(cell)
		}
	}
	if lines.Err() != nil || read >= 2*maxCells {
		return h, h.rewrite()
	}
	return h, os.Chmod(h.path, 0o600)
}

func (h *history) Len() int { return len(h.cells) }

// At returns a cell as a line of the editor; 0 is the latest cell.
func (h *history) At(i int) string { return marked(h.cells[len(h.cells)-1-i]) }

// add adds a cell in memory and returns true. It ignores a cell that is empty, too long, or equal
// to the latest one, and then returns false.
func (h *history) add(cell string) bool {
	if cell == "" || len(cell) > maxCellBytes || len(h.cells) > 0 && h.cells[len(h.cells)-1] == cell {
		return false
	}
	h.cells = append(h.cells, cell)
	h.cells = h.cells[max(0, len(h.cells)-maxCells):]
	return true
}

// keep adds a cell in memory and to the file.
func (h *history) keep(cell string) error {
	if !h.add(cell) || h.path == "" {
		return nil
	}
	file, err := os.OpenFile(h.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	line, _ := json.Marshal(cell) // a string can always be encoded
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// rewrite replaces the file by one that contains only the latest cells.
func (h *history) rewrite() error {
	var text []byte
	for _, cell := range h.cells {
		line, _ := json.Marshal(cell)
		text = append(append(text, line...), '\n')
	}
	next, err := os.CreateTemp(filepath.Dir(h.path), ".code-*") // for this user only
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), h.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	return nil
}
