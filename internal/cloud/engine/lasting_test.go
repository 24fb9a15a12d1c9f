package engine

import (
	"reflect"
	"testing"
	"time"
)

// TestRecordEqual checks that each field of a record makes it another record, and that a time is the
// same in every zone.
func TestRecordEqual(t *testing.T) {
	t.Parallel()
	start := time.Now()
	record := func() Record {
		return Record{
			Template: "base", Metadata: map[string]string{"a": "b"}, StartedAt: start, EndAt: start.Add(time.Hour),
			Paused: true, Linger: time.Minute, Sealed: []byte("sealed"),
		}
	}
	r, same := record(), record()
	same.StartedAt, same.EndAt = same.StartedAt.UTC().Round(0), same.EndAt.UTC().Round(0)
	if !r.Equal(same) {
		t.Errorf("got %+v and %+v different, want them equal", r, same)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Record]()) {
		other := record()
		reflect.ValueOf(&other).Elem().FieldByIndex(field.Index).SetZero()
		if r.Equal(other) || other.Equal(r) {
			t.Errorf("%s: got equal records, want them different", field.Name)
		}
		if twin := other; !other.Equal(twin) {
			t.Errorf("%s: got a record that is not equal to its copy", field.Name)
		}
	}
	other := record()
	other.Metadata["a"] = "c"
	if r.Equal(other) {
		t.Error("got equal records, want them different by a value of the metadata")
	}
}
