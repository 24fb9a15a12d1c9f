package lifecycle

import (
	"reflect"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/must"
)

// change sets v to a different value.
func change(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		m.SetMapIndex(reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem())
		v.Set(m)
	case reflect.Struct:
		change(t, v.Field(0))
	default:
		t.Fatalf("there is a field of type %v", v.Type())
	}
}

// TestFingerprint checks that two requests that differ in any field have different fingerprints.
// Two fields are exceptions: the sealed password, which is different each time, and Egress, which
// follows from other fields.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	same := map[string]bool{"Sealed": true, "Egress": true}
	request := func() (q *Request, parts []any) {
		q = &Request{Network: &Network{Proxy: &network.EgressProxy{}}}
		return q, []any{q, q.Network, q.Network.Proxy, &q.Template}
	}
	plain, parts := request()
	before, err := plain.fingerprint()
	must.Do(t, err)
	for i, part := range parts {
		of := reflect.TypeOf(part).Elem()
		for n := range of.NumField() {
			if field := of.Field(n); !field.IsExported() || field.Name == "Network" || field.Name == "Proxy" {
				continue
			}
			q, parts := request()
			field := reflect.ValueOf(parts[i]).Elem().Field(n)
			change(t, field)
			after, err := q.fingerprint()
			if name := of.Field(n).Name; err != nil || (after == before) != same[name] {
				t.Errorf("%v.%s: got the same fingerprint: %v (%v), want %v", of, name, after == before, err, same[name])
			}
			if q.Network.Proxy.Sealed != nil && of.Field(n).Name != "Sealed" {
				t.Error("the request was changed")
			}
		}
	}
	q, _ := request()
	q.Network.Proxy.Sealed = []byte("sealed")
	if _, err := q.fingerprint(); err != nil || string(q.Network.Proxy.Sealed) != "sealed" {
		t.Errorf("got the password %q and error %v, want the request as it was", q.Network.Proxy.Sealed, err)
	}
	without, err := (Request{}).fingerprint()
	if empty, errOfEmpty := (Request{Network: &Network{}}).fingerprint(); err != nil || errOfEmpty != nil || empty == without {
		t.Errorf("got the same for no network and an empty one: %v (%v, %v)", empty == without, err, errOfEmpty)
	}
}
