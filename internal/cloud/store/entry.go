package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// entry is a stored record. Its encoding is a line of JSON, followed by the bytes of value.
type entry struct {
	Dir   string    `json:"dir,omitempty"` // name in files
	Saved time.Time `json:"saved,omitzero"`
	value []byte
}

func (e entry) encode() []byte {
	head, _ := json.Marshal(e) // strings and times can always be encoded
	return append(append(head, '\n'), e.value...)
}

// errRecord is wrapped by errors about unreadable records.
var errRecord = errors.New("the record is damaged")

// decode decodes text, the stored form of the record with an id. Whatever text contains, the
// directory of the record is below files.
func (s *Store) decode(id string, text []byte) (Record, error) {
	head, value, found := bytes.Cut(text, []byte{'\n'})
	if !found {
		return Record{}, fmt.Errorf("%q: %w: it is cut off", id, errRecord)
	}
	var e entry
	if err := json.Unmarshal(head, &e); err != nil {
		return Record{}, fmt.Errorf("%q: %w: %w", id, errRecord, err)
	}
	record := Record{ID: id, Value: bytes.Clone(value), Saved: e.Saved}
	if e.Dir == "" {
		return record, nil
	}
	if owner, _, _ := strings.Cut(e.Dir, "."); owner != id || e.Dir != filepath.Base(e.Dir) {
		return Record{}, fmt.Errorf("%q: %w: it names files that are not its own", id, errRecord)
	}
	record.Dir = filepath.Join(s.path(published), e.Dir)
	return record, nil
}
