package state

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"image"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestStrictness checks spellings that a codec never writes, and that a reader of Go or of JSON would take.
func TestStrictness(t *testing.T) {
	t.Parallel()
	data := make([]byte, blobFrom)
	hash := Hash(sha256.Sum256(data))
	bytesOf := func(rest string) string {
		return `{"$":"bytes","base64":{"$":"blob","sha256":"` + hash.String() + `"` + rest + `}}`
	}
	for body, valid := range map[string]bool{
		`{"$":"datetime","iso":"2026-01-02T03:04:05.000000"}`: true, `{"$":"datetime","iso":"2026-01-02T3:04:05.000000"}`: false,
		`{"$":"datetime","iso":"2026-01-02T03:04:05,000000"}`: false, `{"$":"time","value":{"iso":"03:04:05,000000"}}`: false,
		`{"$":"time","value":{"iso":"03:04:05.000000"}}`: true, `{"$":"time","value":{"iso":"3:04:05.000000"}}`: false,
		`{"$":"datetime","iso":"2026-01-02T03:04:05.000000","offset":-86399}`: true, `{"$":"datetime","iso":"2026-01-02T03:04:05.000000","offset":-86400}`: false,
		`{"$":"timedelta","days":-999999999,"seconds":0,"microseconds":0}`: true, `{"$":"timedelta","days":-1000000000,"seconds":0,"microseconds":0}`: false,
		`1E5`: true, `1E+5`: true, `1F5`: false,
		bytesOf(`,"size":65536`): true, bytesOf(`65536`): false, bytesOf(`,"size":65537`): false, bytesOf(``): false,
	} {
		doc := []byte(documentStart + body + documentEnd)
		if v, err := ParseDetached(doc, Blobs{hash: data}, Bounds{}); (err == nil) != valid {
			t.Errorf("%s: got error %v, want it to be valid: %v", body, err, valid)
		} else if valid {
			_ = v.String()
		}
	}
	for name, want := range map[string]bool{
		"CET": true, "Etc/GMT+5": true, "a{": false, "a|b": false, "a[": false, "1a": false, "a.b/c": false, "": false, "Local": false, "localtime": false, "posixrules": false,
		strings.Repeat("a", 64): true, strings.Repeat("a", 65): false,
	} {
		if got := isZoneName(name); got != want {
			t.Errorf("the zone %q: got %v", name, got)
		}
	}
}

// TestZonesAreBounded checks that a document cannot fill the caches of zones.
func TestZonesAreBounded(t *testing.T) {
	t.Parallel()
	own := zones{}
	database.Lock()
	database.zones = zones{}
	for i := range maxZones {
		own[fmt.Sprint(i)], database.zones[fmt.Sprint(i)] = nil, nil
	}
	database.Unlock()
	if found := own.load("Europe/Berlin"); found != nil || len(own) != maxZones {
		t.Errorf("got %v in a full cache of %d zones", found, len(own))
	}
	loadZone("Europe/Berlin")
	database.Lock()
	defer database.Unlock()
	if n := len(database.zones); n > maxZones || database.zones["Europe/Berlin"] == nil {
		t.Errorf("the cache of the process has %d zones, want at most %d and the latest one", n, maxZones)
	}
}

// TestZonesOfOneOffset checks that a program's own name of an offset is sent only if the database has the same rules for it.
func TestZonesOfOneOffset(t *testing.T) {
	t.Parallel()
	for name, offset := range map[string]int{"GMT": 3600, "a.b/c": 3600, "A/../B": -3600} {
		doc, err := Marshal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone(name, offset)))
		if want := fmt.Sprintf(`"offset":%d}`, offset); err != nil || !strings.Contains(string(doc), want) {
			t.Errorf("%s: got %s and error %v, want %s", name, doc, err, want)
		}
	}
	doc, err := Marshal(Timestamp{Time: time.Date(2026, 1, 2, 0, 0, 0, 0, Naive), Pytz: true})
	if err != nil || strings.Contains(string(doc), "pytz") {
		t.Errorf("got %s and error %v, want no package of a zone that there is not", doc, err)
	}
}

type (
	word   string
	inside struct{ Deep int }
	hidden struct{ Deep int }

	// Whole is embedded, and is no struct. Outer is embedded, and is one.
	Whole int
	Outer struct{ Deep int }
)

// TestFieldsInFields checks the keys of embedded fields of each kind.
func TestFieldsInFields(t *testing.T) {
	t.Parallel()
	for want, x := range map[string]any{
		`{"Whole":1,"X":2}`: struct {
			Whole
			X int
		}{1, 2},
		`{"Whole":1}`: struct{ *Whole }{new(Whole(1))},
		`{"in":{"Deep":3}}`: struct {
			Inside inside `py:"in"`
		}{inside{3}},
		`{"own":{"Deep":3},"X":4}`: struct {
			Outer `py:"own"`
			X     int
		}{Outer{3}, 4},
		`{"X":4}`: struct {
			Outer `py:"-"`
			X     int
		}{Outer{3}, 4},
		`{"Deep":3,"X":4}`: struct {
			Outer
			X int
		}{Outer{3}, 4},
	} {
		doc, err := Marshal(x)
		if err != nil || string(doc) != documentStart+want+documentEnd {
			t.Errorf("%T: got %s and error %v, want %s", x, doc, err, want)
		}
	}
	if err := Unmarshal([]byte(documentStart+`{"Deep":1}`+documentEnd), new(struct{ *hidden })); err == nil || !strings.Contains(err.Error(), "unexported type") {
		t.Errorf("a field in a nil pointer to an unexported type: got error %v", err)
	}
	if err := Unmarshal([]byte(documentStart+`{}`+documentEnd), new(struct {
		A int `py:"x"`
		B int `py:"x"`
	})); err == nil || !strings.Contains(err.Error(), "both have the key") {
		t.Errorf("two fields of one key: got error %v", err)
	}
}

// TestDeepValues checks the bound of the depth for each kind that contains others.
func TestDeepValues(t *testing.T) {
	t.Parallel()
	for what, x := range map[string]any{"a Dict": Dict{}, "a struct": struct{}{}, "a tuple": Tuple{}, "an array": [1]int{}, "a set": Set{}, "a frozen set": FrozenSet{}, "a list": []int{}, "a map": map[string]int{}, "floats": make([]float64, packFrom)} {
		for range DefaultMaxDepth - 1 {
			x = []any{x}
		}
		if _, err := Marshal(x); err != nil {
			t.Errorf("%s at the greatest depth: %v", what, err)
		}
		doc, err := Marshal([]any{x})
		if limit, ok := errors.AsType[*LimitError](err); !ok || limit.Limit != "MaxDepth" {
			t.Errorf("%s one deeper: got %.40s and error %v, want a *LimitError of MaxDepth", what, doc, err)
		}
	}
}

// TestUnusualTargets checks values that fit their target only in part, or that another rule must not take.
func TestUnusualTargets(t *testing.T) {
	t.Parallel()
	numbers, err := Marshal(make([]float64, packFrom))
	must.Do(t, err)
	years := Array{Dtype: "<m8[Y]", Shape: []int{1}, Data: make([]byte, 8)}
	years.Data[0] = 1
	most := Array{Dtype: "<u8", Shape: []int{1}, Data: []byte{255, 255, 255, 255, 255, 255, 255, 255}}
	texts := Array{Dtype: "|S2", Shape: []int{1}, Data: []byte("a\x00")}
	for what, tt := range map[string]struct {
		from, into any
		want       any // nil: an error
	}{
		"floats into ints":              {numbers, new([]int), nil},
		"an int among strings":          {[]any{"a", 1}, new([]string), nil},
		"a str into a type of strings":  {"a", new(word), word("a")},
		"years into a duration":         {years, new([]time.Duration), nil},
		"years into pointers":           {years, new([]*time.Duration), nil},
		"a scalar of years":             {Scalar{years.Dtype, years.Data}, new(*time.Duration), nil},
		"elements into an interface":    {most, new([]fmt.Stringer), nil},
		"the largest into pointers":     {most, new([]*uint64), []*uint64{new(uint64(math.MaxUint64))}},
		"the largest into large ints":   {most, new([]big.Int), []big.Int{*new(big.Int).SetUint64(math.MaxUint64)}},
		"bytes of an array":             {texts, new([][]byte), [][]byte{[]byte("a")}},
		"a month, which has its method": {time.March, new(int), 3},
		"in a list":                     {[]any{time.March, struct{ M time.Month }{time.May}}, new([]any), []any{int64(3), map[string]any{"M": int64(5)}}},
	} {
		doc, ok := tt.from.([]byte)
		if !ok {
			doc, err = Marshal(tt.from)
			must.Do(t, err)
		}
		err := Unmarshal(doc, tt.into)
		if (err == nil) != (tt.want != nil) {
			t.Errorf("%s: got %v and error %v, want %v", what, tt.into, err, tt.want)
		} else if diff := cmp.Diff(tt.want, reflect.ValueOf(tt.into).Elem().Interface(), cmp.Comparer(func(a, b big.Int) bool { return a.Cmp(&b) == 0 })); err == nil && diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// TestUnusualDtypes checks dtypes whose elements have no bytes, no name, or more than a number of 64 bits counts.
func TestUnusualDtypes(t *testing.T) {
	t.Parallel()
	for dtype, want := range map[string]Dict{
		`[["","|V4"],["a","|u1"]]`:         {{"a", uint64(5)}},
		`[["a","<U0"],["b","|u1"]]`:        {{"a", ""}, {"b", uint64(1)}},
		`[["a","|S0",[1000]],["b","|b1"]]`: nil,
	} {
		a := Array{Dtype: dtype, Shape: []int{1}, Data: []byte{1, 2, 3, 4, 5}}
		a.Data = a.Data[:map[bool]int{true: 5, false: 1}[strings.Contains(dtype, "V4")]]
		x, err := a.At(0)
		if diff := cmp.Diff(any(want), x); err != nil || want != nil && diff != "" {
			t.Errorf("%s: got error %v (-want +got):\n%s", dtype, err, diff)
		}
	}
	for _, shape := range [][]int{{1 << 28, 1 << 28, 1 << 8}, {1<<28 + 1}, {1 << 14, 1<<14 + 1}} {
		_, err := Marshal(Array{Dtype: "|V0", Shape: shape})
		if limit, ok := errors.AsType[*LimitError](err); !ok || limit.Limit != "MaxElements" || limit.Max != DefaultMaxElements {
			t.Errorf("the shape %v: got error %v, want a *LimitError of MaxElements", shape, err)
		}
	}
	for year, unit := range map[int]string{1677: "us", 1678: "ns", 2261: "ns", 2262: "us"} {
		c, err := ColumnOf("c", []time.Time{time.Date(year, 1, 1, 0, 0, 0, 0, Naive)})
		if err != nil || c.Dtype != "datetime64["+unit+"]" {
			t.Errorf("a time in %d: got the dtype %s and error %v, want %s", year, c.Dtype, err, unit)
		}
	}
}

// TestUnusualValues checks values that other values only seem to be like, and that are refused as a whole.
func TestUnusualValues(t *testing.T) {
	t.Parallel()
	if v, err := FromJSON([]byte(`{"\ud800":1}`)); err == nil {
		t.Errorf("half of a pair as a key: got %v", v)
	}
	if text := "\ufffd\xed\xa0\x80"; !isSurrogatePass(text) {
		t.Errorf("%q is no text with surrogates", text)
	}
	if err := CheckName("〇"); err != nil {
		t.Errorf("a letter that is a number: got error %v", err)
	}
	if got := (Instance{Kind: KindSubclass, Type: "a.B"}).Member() + (Instance{Kind: KindEnum, Type: "a.B.C"}).Member(); got != "C" {
		t.Errorf("got the members %q, want that of the Enum alone", got)
	}
	for body, want := range map[string]string{
		`{"a":1,"a":2}`: "<dict: state: decode", `{"$":"enum","value":{"type":"A","value":1}}`: "A(1)", `{"$":"namedtuple","value":{"type":"m.P","value":1}}`: "P(1)",
	} {
		v, err := Parse([]byte(documentStart+body+documentEnd), Bounds{})
		if got := v.String(); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s and error %v, want %s", body, got, err, want)
		}
	}
	if got := (Scalar{Dtype: "<i4"}).String(); got != "<<i4>" {
		t.Errorf("a scalar without its bytes is %s", got)
	}
	zoned := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	if table, err := TableOf([]struct{ At time.Time }{{zoned}, {zoned.In(Naive)}}); err == nil {
		t.Errorf("times with and without a zone: got %v", table)
	}
	years := Column{Dtype: "timedelta64[Y]", Data: Array{Dtype: "<m8[Y]", Shape: []int{1}, Data: []byte{1, 7: 0}}}
	if _, err := Marshal(Table{Columns: []Column{integers(1)}, Labels: &years}); err == nil {
		t.Error("labels that have no Go form were left out")
	}
	if m, err := ImageOf(image.NewGray(image.Rectangle{})); err == nil {
		t.Errorf("a picture of no pixels: got %v", m)
	}
	if m, err := ImageOf(struct{ image.Image }{image.NewGray(image.Rect(0, 0, 1, 1))}); err != nil || m.Mode != "RGBA" {
		t.Errorf("a picture of an unknown type: got the mode %s and error %v", m.Mode, err)
	}
	seen := 0
	for range (Blobs{Hash{1}: nil, Hash{2}: nil}).All() {
		if seen++; seen == 1 {
			break
		}
	}
}

// TestStateIsUnlocked checks that each method of a state leaves it to the next.
func TestStateIsUnlocked(t *testing.T) {
	t.Parallel()
	st, other := New(), New()
	must.Do(t, other.Set("b", 2))
	for what, call := range map[string]func(){
		"Set": func() { must.Do(t, st.Set("a", 1)) }, "Merge": func() { st.Merge(other) }, "Value": func() { st.Value("a") }, "Delete": func() { st.Delete("c") },
		"Names": func() { st.Names() }, "Entries": func() { st.Entries() }, "Get": func() { _ = st.Get("c", new(int)) },
	} {
		if call(); !st.mu.TryLock() {
			t.Fatalf("%s keeps the lock", what)
		}
		st.mu.Unlock()
	}
	if names := strings.Join(st.Names(), " "); names != "a b" {
		t.Errorf("got the names %s", names)
	}
}
