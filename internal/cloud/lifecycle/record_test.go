package lifecycle

import (
	"crypto/sha256"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// notCarried are the fields of a sandbox that an adopted one does not have from its record: it runs,
// and its rules result from the request.
var notCarried = []string{"Request.Egress", "State", "Memory", "Unresponsive"}

// fill gives each field below v a value that is not zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key)
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(7)
	default:
		t.Fatalf("a value of the kind %v: add it here", v.Kind())
	}
}

// TestEveryFieldIsCarried checks that an adopted sandbox has each field that the sandbox had.
func TestEveryFieldIsCarried(t *testing.T) {
	t.Parallel()
	var want Sandbox
	var o once
	for i := range reflect.TypeFor[Sandbox]().NumField() {
		if f := reflect.TypeFor[Sandbox]().Field(i); f.Name != "Request" {
			fill(t, reflect.ValueOf(&want).Elem().Field(i))
		}
	}
	for i := range reflect.TypeFor[Request]().NumField() {
		if f := reflect.TypeFor[Request]().Field(i); f.Name != "Egress" {
			fill(t, reflect.ValueOf(&want.Request).Elem().Field(i))
		}
	}
	fill(t, reflect.ValueOf(&o).Elem())
	want.ID = newID()
	record, err := want.engineRecord(&o)
	must.Do(t, err)
	got, once, err := sandboxOf(want.ID, record)
	must.Do(t, err)
	if once == nil || once.Key != o.Key || once.Request != ([sha256.Size]byte(o.Request)) {
		t.Errorf("it carries the create request %+v, want %+v", once, o)
	}
	for _, name := range notCarried {
		field := reflect.ValueOf(&want).Elem()
		for part := range strings.SplitSeq(name, ".") {
			field = field.FieldByName(part)
		}
		field.SetZero()
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	again, err := got.engineRecord(once)
	must.Do(t, err)
	if !again.Equal(record) {
		t.Errorf("the record of the adopted one is %+v, want %+v", again, record)
	}
}
