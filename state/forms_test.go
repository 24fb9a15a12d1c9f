package state

import (
	"errors"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestUnitTimes checks the times of numpy's units, and those that have no Go form.
func TestUnitTimes(t *testing.T) {
	t.Parallel()
	epoch := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		value    int64
		unit     string
		multiple int64
		want     time.Time // zero: none
	}{
		{1, "Y", 1, epoch.AddDate(1, 0, 0)}, {-1, "M", 2, epoch.AddDate(0, -2, 0)}, {1<<31 - 1, "Y", 1, epoch.AddDate(1<<31-1, 0, 0)}, {1 << 31, "Y", 1, time.Time{}}, {-1 << 31, "Y", 1, time.Time{}},
		{1<<31 - 1, "M", 1, epoch.AddDate(0, 1<<31-1, 0)}, {1 << 31, "M", 1, time.Time{}}, {1 - 1<<31, "M", 1, epoch.AddDate(0, 1-1<<31, 0)}, {-1 << 31, "M", 1, time.Time{}}, {1 - 1<<31, "Y", 1, epoch.AddDate(1-1<<31, 0, 0)},
		{-1, "ns", 1, epoch.Add(-1)}, {1, "ms", 25, epoch.Add(25 * time.Millisecond)}, {1, "W", 1, epoch.AddDate(0, 0, 7)}, {1, "ps", 1, time.Time{}}, {1, "s", 0, time.Time{}}, {1, "s", 1 << 31, time.Unix(1<<31, 0).UTC()}, {1, "s", 1<<31 + 1, time.Time{}},
		{math.MaxInt64, "s", 2, time.Time{}}, {math.MinInt64, "s", 2, time.Time{}}, {maxUnixSeconds, "s", 1, time.Unix(maxUnixSeconds, 0).UTC()}, {maxUnixSeconds + 1, "s", 1, time.Time{}}, {-maxUnixSeconds, "s", 1, time.Unix(-maxUnixSeconds, 0).UTC()}, {-maxUnixSeconds - 1, "s", 1, time.Time{}},
	} {
		if got, ok := unitTime(tt.value, tt.unit, tt.multiple); ok == tt.want.IsZero() || ok && !got.Equal(tt.want) {
			t.Errorf("%d times %d %s: got %v, %v, want %v", tt.value, tt.multiple, tt.unit, got, ok, tt.want)
		}
	}
	for _, tt := range []struct {
		dtype string
		value int64
		want  any // nil: an error
	}{
		{"<m8[s]", 2, 2 * time.Second}, {"<m8[25s]", -2, -50 * time.Second}, {"<m8[ns]", math.MinInt64, NaT}, {"<m8[Y]", 1, nil}, {"<m8[us]", math.MaxInt64, Timedelta{106751991, 14454, 775807}}, {"<m8[2us]", math.MaxInt64, nil},
		{"<m8[ms]", math.MinInt64 + 1, Timedelta{-106751991168, 60424, 193000}}, {"<m8[D]", 106752, Timedelta{106752, 0, 0}}, {"<m8[D]", math.MaxInt64, nil}, {"<m8[D]", math.MinInt64 + 1, nil}, {"<m8[2D]", 53376, Timedelta{106752, 0, 0}}, {"<m8[D]", -106752, Timedelta{-106752, 0, 0}},
		{"<M8[s]", 0, epoch.In(Naive)}, {"<M8[ps]", 0, nil},
	} {
		d, err := parseDtype(tt.dtype)
		must.Do(t, err)
		if got, err := d.time(tt.value); (err == nil) != (tt.want != nil) || err == nil && !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%d as %s: got %#v and error %v, want %#v", tt.value, tt.dtype, got, err, tt.want)
		}
	}
}

// TestInvalidForms checks values and payloads with one wrong part.
func TestInvalidForms(t *testing.T) {
	t.Parallel()
	clock := func(p clockPayload) error { _, err := timeOfDayOf(p); return err }
	stamp := func(p timestampPayload) error { _, err := timestampOf(p); return err }
	formed := func(f interface{ form() (Kind, any, error) }) error { _, _, err := f.form(); return err }
	uuid := func(text string) error { _, err := ParseUUID(text); return err }
	for name, tt := range map[string]struct {
		err  error
		fine bool
	}{
		"a time":               {clock(clockPayload{"01:02:03.000004", "", false}), true},
		"a longer fraction":    {clock(clockPayload{"01:02:03.0000040", "", false}), false},
		"no time":              {clock(clockPayload{"25:02:03.000004", "", false}), false},
		"a zone of no one":     {clock(clockPayload{"01:02:03.000004", "no zone!", false}), false},
		"an offset":            {clock(clockPayload{"01:02:03.000004", "-07:00:05", false}), true},
		"a short offset":       {clock(clockPayload{"01:02:03.000004", "-7:00", false}), false},
		"a moment":             {stamp(timestampPayload{1, "s", "UTC", false}), true},
		"its unit":             {stamp(timestampPayload{1, "m", "", false}), false},
		"its other unit":       {stamp(timestampPayload{1, "ps", "", false}), false},
		"its zone":             {stamp(timestampPayload{1, "s", "No/Where", false}), false},
		"out of range":         {stamp(timestampPayload{math.MaxInt64, "s", "", false}), false},
		"a moment in minutes":  {formed(Timestamp{Unit: "m"}), false},
		"a moment in years":    {formed(Timestamp{Unit: "Y"}), false},
		"a moment in seconds":  {formed(Timestamp{Unit: "s"}), true},
		"less than no time":    {Timedelta{Microseconds: -1}.check(), false},
		"a deque":              {formed(Deque{MaxLen: new(0)}), true},
		"a deque of less":      {formed(Deque{MaxLen: new(-1)}), false},
		"a UUID":               {uuid("ab000000-0000-0000-0000-000000000001"), true},
		"in upper case":        {uuid("AB000000-0000-0000-0000-000000000001"), false},
		"other dashes":         {uuid("ab00-00000000-0000-0000-000000000001"), false},
		"no digits":            {uuid("xb000000-0000-0000-0000-000000000001"), false},
		"a type of no one":     {func() error { _, err := (dtype{kind: 'O'}).value(nil); return err }(), false},
		"a scalar of an |O":    {formed(Scalar{Dtype: "|O"}), false},
		"a scalar of no dtype": {func() error { _, err := (Scalar{Dtype: "x"}).Value(); return err }(), false},
		"an empty text":        {formed(Scalar{Dtype: "<U0", Data: make([]byte, 4)}), true},
	} {
		if (tt.err == nil) != tt.fine {
			t.Errorf("%s: got error %v, want one: %v", name, tt.err, !tt.fine)
		}
	}
	for zone, want := range map[string]string{"": "Local", "UTC": "UTC", "-07:00": "", "Some/Where": "Some/Where"} {
		somewhere := time.FixedZone("Some/Where", 60)
		location, err := zoneLocation(zone, func(name string) *time.Location {
			if name == "Some/Where" {
				return somewhere
			}
			return nil
		})
		if zone == "" {
			want = Naive.String()
		}
		if err != nil || location.String() != want {
			t.Errorf("the zone %q: got %v and error %v", zone, location, err)
		}
	}
	if location, err := zoneLocation("No/Where", func(string) *time.Location { return nil }); err == nil || location != nil {
		t.Errorf("a zone that is not there: got %v", location)
	}
	if got := (&FormatError{3, "damaged", errors.New("cause")}).Error(); got != "state: load (byte 3): damaged: cause" {
		t.Errorf("got %q", got)
	}
	var into, from State
	must.Do(t, from.Set("a", 1))
	into.Merge(&from)
	if n := 0; into.Get("a", &n) != nil || n != 1 {
		t.Errorf("merged into an empty state: got %d", n)
	}
}

// TestColumnValues checks the values of columns by their positions and in Go types.
func TestColumnValues(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 3600)
	words := integers(7, 8)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	times, err := ColumnOf("t", []time.Time{at.In(zone), at})
	must.Do(t, err)
	for name, tt := range map[string]struct {
		c    Column
		want []any
	}{
		"integers": {integers(1, 2), []any{int64(1), int64(2)}}, "a range": {Column{Dtype: rangeDtype, Range: &Range{5, 1, -2}}, []any{int64(5), int64(3)}},
		"categories": {changed(func(c *Column) { c.Dtype, c.Categories, c.Data = categoryDtype, &words, integers(1, -1).Data }), []any{int64(8), NA}},
		"a mask":     {changed(func(c *Column) { c.Mask = []bool{true, false} }), []any{NA, int64(1)}}, "times": {times, []any{at.In(zone), at.In(zone)}},
		"a name with a comma": {Column{Dtype: "a, b", Data: integers(3).Data}, []any{int64(3)}},
	} {
		for i := -1; i <= len(tt.want); i++ {
			got, err := tt.c.At(i)
			if outside := i < 0 || i == len(tt.want); (err != nil) != outside || !outside && !cmp.Equal(got, tt.want[i]) {
				t.Errorf("%s, %d: got %v and error %v, want %v", name, i, got, err, tt.want)
			}
		}
	}
	bad := changed(func(c *Column) { c.Mask = []bool{true} })
	nowhere := times
	nowhere.Dtype = "datetime64[ns, No/Where]"
	for name, c := range map[string]Column{"a short mask": bad, "no such zone": nowhere, "no dtype": {Data: Array{Dtype: "x"}}} {
		if got, err := c.At(0); err == nil {
			t.Errorf("%s: got %v", name, got)
		}
		if got, err := Values[time.Time](c); err == nil {
			t.Errorf("%s: got %v", name, got)
		}
	}
	ranged, err := Values[int](Column{Dtype: rangeDtype, Range: &Range{0, 3, 1}})
	if err != nil || len(ranged) != 3 || ranged[2] != 2 {
		t.Errorf("the values of a range: got %v and error %v", ranged, err)
	}
	chosen, err := Values[int](changed(func(c *Column) { c.Dtype, c.Categories, c.Data = categoryDtype, &words, integers(1, 0).Data }))
	if err != nil || !cmp.Equal(chosen, []int{8, 7}) {
		t.Errorf("the values of categories: got %v and error %v", chosen, err)
	}
	moments, err := Values[time.Time](times)
	if err != nil || !cmp.Equal(moments, []time.Time{at, at}) {
		t.Errorf("the values of times: got %v and error %v", moments, err)
	}
	if _, err := ColumnOf("t", []time.Time{at, at.In(Naive)}); err == nil || !strings.Contains(err.Error(), "with and without a zone") {
		t.Errorf("times with and without a zone: got error %v", err)
	}
	if _, err := ColumnOf("t", []time.Time{at.In(Naive), at}); err == nil || !strings.Contains(err.Error(), "with and without a zone") {
		t.Errorf("times without and with a zone: got error %v", err)
	}
}

// TestElementsOfArrays checks elements in Go types, in the order of the rows.
func TestElementsOfArrays(t *testing.T) {
	t.Parallel()
	plain := Array{Dtype: "|u1", Shape: []int{2, 2}, Data: []byte{1, 2, 3, 4}}
	columns := plain
	columns.Fortran = true
	line := Array{Dtype: "|u1", Shape: []int{2}, Data: []byte{1, 2}, Fortran: true}
	for name, tt := range map[string]struct {
		a    Array
		want []uint8
	}{"rows": {plain, []uint8{1, 2, 3, 4}}, "columns": {columns, []uint8{1, 3, 2, 4}}, "a line": {line, []uint8{1, 2}}} {
		if got, err := Elements[uint8](tt.a); err != nil || !cmp.Equal(got, tt.want) {
			t.Errorf("%s: got %v and error %v, want %v", name, got, err, tt.want)
		}
	}
	for name, err := range map[string]error{
		"no dtype": func() error { _, err := Elements[int](Array{Dtype: "x"}); return err }(),
		"too large": func() error {
			_, err := Elements[int8](Array{Dtype: "<i2", Shape: []int{1}, Data: []byte{0, 1}})
			return err
		}(),
		"no sides": Unmarshal(marshaled(t, Array{Dtype: "|u1", Shape: []int{}, Data: []byte{1}}), new([]uint8)),
		"no slice": Unmarshal(marshaled(t, plain), new([]uint8)),
		"objects":  Array{Dtype: "<i2", Shape: []int{1}, Data: []byte{0, 1}, Objects: []any{1}}.formError(),
		"bytes":    Array{Dtype: "|O", Shape: []int{1}, Data: []byte{0, 1}, Objects: []any{1}}.formError(),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	var square [][]uint8
	if err := Unmarshal(marshaled(t, columns), &square); err != nil || !cmp.Equal(square, [][]uint8{{1, 3}, {2, 4}}) {
		t.Errorf("got %v and error %v", square, err)
	}
}

func (a Array) formError() error { _, err := Marshal(a); return err }

func marshaled(t *testing.T, x any) []byte {
	t.Helper()
	doc, err := Marshal(x)
	must.Do(t, err)
	return doc
}

// TestRows checks which structs can be rows of a table, and labels of columns.
func TestRows(t *testing.T) {
	t.Parallel()
	type hidden struct {
		C int64 `py:"c"`
	}
	table := Table{Columns: []Column{integers(1, 2)}}
	for name, err := range map[string]error{
		"a field twice": func() error {
			_, err := Rows[struct {
				A int `py:"c"`
				B int `py:"c"`
			}](table)
			return err
		}(),
		"a pointer to a hidden struct": func() error { _, err := Rows[struct{ *hidden }](table); return err }(),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	type reached struct{ hidden }
	if got, err := Rows[reached](table); err != nil || len(got) != 2 || got[1].C != 2 {
		t.Errorf("got %v and error %v", got, err)
	}
	if got, err := Rows[struct{ Other int }](table); err != nil || len(got) != 2 {
		t.Errorf("a column without a field: got %v and error %v", got, err)
	}
	if got := orCounted(Column{Range: &Range{3, 4, 1}}, 1); got.Range.Start != 3 {
		t.Errorf("got the index %+v, want its own", got)
	}
	if got := orCounted(Column{Name: "i"}, 2); got.Name != "i" || got.Range == nil || got.Range.Stop != 2 {
		t.Errorf("got the index %+v, want a counted one", got)
	}
	labels := integers(7)
	labeled := Table{Columns: []Column{integers(1)}, Labels: &labels}
	labeled.Columns[0].Name = int64(7)
	var back Table
	if err := Unmarshal(marshaled(t, labeled), &back); err != nil || back.Labels == nil || back.Columns[0].Name != int64(7) {
		t.Errorf("got %+v and error %v, want its labels", back, err)
	}
	labeled.Columns[0].Name = int64(8)
	if err := Unmarshal(marshaled(t, labeled), &back); err != nil || back.Labels != nil || back.Columns[0].Name != int64(8) {
		t.Errorf("got %+v and error %v, want names instead of labels that no longer match", back, err)
	}
}

// refusing is a text that cannot be written.
type refusing struct{}

func (refusing) MarshalText() ([]byte, error) { return nil, errors.New("no text") }

// onPointer writes itself through a pointer only.
type onPointer struct{ N int }

func (p *onPointer) MarshalPython() (any, error) { return p.N, nil }

type onPointerText struct{ N int }

func (p *onPointerText) MarshalText() ([]byte, error) { return []byte("text"), nil }

// TestOwnForms checks which values choose their own form.
func TestOwnForms(t *testing.T) {
	t.Parallel()
	if _, err := Marshal(refusing{}); err == nil || !strings.Contains(err.Error(), "MarshalText of state.refusing: no text") {
		t.Errorf("got error %v", err)
	}
	for want, x := range map[string]any{
		"7":               &onPointer{7},
		`{"N":8}`:         onPointer{8}, // it cannot be addressed
		"[9]":             []onPointer{{9}},
		`["text"]`:        []onPointerText{{1}},
		`{"A":null}`:      struct{ A *onPointer }{},
		`{"A":10}`:        struct{ A *onPointer }{&onPointer{10}},
		"100000000000000": big.NewInt(100000000000000),
		`{"A":null,"B":""}`: struct {
			A Value
			B string
		}{},
	} {
		if got := string(marshaled(t, x)); got != documentStart+want+documentEnd {
			t.Errorf("%T: got %s, want %s", x, got, want)
		}
	}
	v, err := NewValue("text")
	must.Do(t, err)
	if got := string(marshaled(t, []any{v, Value{}})); got != documentStart+`["text",null]`+documentEnd {
		t.Errorf("got %s", got)
	}
}

// TestReprs checks the texts of values that the tests with Python do not have.
func TestReprs(t *testing.T) {
	t.Parallel()
	many := make([]int64, maxShown+1)
	two := Table{Columns: []Column{integers(1), integers(2)}}
	wide := Table{Columns: []Column{integers(many[:maxShown/2+1]...), integers(many[:maxShown/2+1]...)}}
	for want, x := range map[string]any{
		`E.A`:                             Instance{Kind: KindEnum, Type: "shapes.E.A", Value: "x"},
		`P(x=1, y="it's")`:                Instance{Kind: KindNamedTuple, Type: "shapes.P", Value: Dict{{"x", int64(1)}, {"y", "it's"}}},
		`D(a=1)`:                          Instance{Kind: KindDataclass, Type: "shapes.D", Value: Dict{{"a", int64(1)}}},
		`L([1])`:                          Instance{Kind: KindSubclass, Type: "shapes.L", Value: []any{int64(1)}},
		`defaultdict(list, {})`:           Instance{Kind: KindDefaultDict, Type: "builtins.list", Value: Dict{}},
		`DataFrame({'c': [1], 'c': [2]})`: two,
		`<DataFrame of 501 rows with the columns 'c', 'c'>`: wide,
		`Series([1])`:                                     Series{Column: integers(1)},
		`Index(1001 values, dtype int64)`:                 Index{integers(many...)},
		`array([[1, 2], [3, 4]])`:                         Array{Dtype: "|u1", Shape: []int{2, 2}, Data: []byte{1, 2, 3, 4}},
		`<array of shape (0, 3), dtype |u1>`:              Array{Dtype: "|u1", Shape: []int{0, 3}},
		`Series([<a timedelta64 in "Y" has no Go form>])`: Series{Column: Column{Dtype: "timedelta64[Y]", Data: Array{Dtype: "<m8[Y]", Shape: []int{1}, Data: []byte{1, 7: 0}}}},
		`(-0+1j)`:  complex(math.Copysign(0, -1), 1),
		`1j`:       1i,
		`(1-2j)`:   complex(1, -2),
		`'\ud800'`: "\xed\xa0\x80",
		`'�'`:      "\ufffd",
	} {
		v, err := NewValue(x)
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		if got := v.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestFormsOfGoKinds checks that a type of this package which is a string or an array takes only its own kind.
func TestFormsOfGoKinds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ from, into any }{
		{"1.5", new(Decimal)}, {"NaT", new(Singleton)}, {make([]byte, 16), new(UUID)},
	} {
		doc, err := Marshal(tt.from)
		must.Do(t, err)
		if err := Unmarshal(doc, tt.into); err == nil {
			t.Errorf("%#v becomes %#v", tt.from, tt.into)
		}
	}
}
