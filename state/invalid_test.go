package state

import (
	"errors"
	"image"
	"image/color"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// integers returns a column of integers.
func integers(n ...int64) Column {
	c, _ := ColumnOf("c", n) // integers always have a column
	return c
}

// changed returns a column of two integers with a change.
func changed(change func(c *Column)) Column {
	c := integers(0, 1)
	change(&c)
	return c
}

// TestInvalidColumns checks the error of each rule of columns, tables, series and indexes, when they are sent.
func TestInvalidColumns(t *testing.T) {
	t.Parallel()
	words := integers(1, 2, 3)
	category := func(change func(c *Column)) Column {
		return changed(func(c *Column) { c.Dtype, c.Categories = categoryDtype, &words; change(c) })
	}
	codes := func(of ...int64) Column {
		return category(func(c *Column) { c.Data = integers(of...).Data })
	}
	small := Range{0, 2, 1}
	ranged := Column{Dtype: rangeDtype, Range: &small}
	bad := changed(func(c *Column) { c.Mask = []bool{true} })
	for name, tt := range map[string]struct {
		x    any
		want string // in the error; "": none
	}{
		"valid": {changed(func(*Column) {}), ""}, "a category": {category(func(*Column) {}), ""}, "codes": {codes(-1, 2), ""}, "a code below": {codes(-2, 2), "the code -2, where there are 3 categories"},
		"a code above":          {codes(-1, 3), "the code 3, where there are 3 categories"},
		"two dimensions":        {changed(func(c *Column) { c.Data.Shape = []int{1, 2} }), "a column of the shape [1 2]"},
		"a range with values":   {changed(func(c *Column) { c.Range = &small }), "a column of the shape"},
		"a short mask":          {bad, "a column of 2 values with a mask of 1"},
		"categories without it": {category(func(c *Column) { c.Dtype = "int64" }), "does not match its categories"},
		"it without categories": {category(func(c *Column) { c.Categories = nil }), "does not match its categories"},
		"nested categories":     {category(func(c *Column) { inner := codes(0); c.Categories = &inner }), "that have categories themselves"},
		"invalid categories":    {category(func(c *Column) { c.Categories = &bad }), "with a mask of 1"},
		"codes that are floats": {category(func(c *Column) { c.Data = Array{Dtype: "<f8", Shape: []int{1}, Data: make([]byte, 8)} }), "whose codes are not integers"},
		"a range":               {ranged, ""}, "no range": {Column{Dtype: rangeDtype}, "a range without its numbers"},
		"a range with a mask":      {Column{Dtype: rangeDtype, Range: &small, Mask: []bool{}}, "a range without its numbers"},
		"a range with categories":  {Column{Dtype: rangeDtype, Range: &small, Categories: &words}, "a range without its numbers"},
		"the longest range":        {Column{Dtype: rangeDtype, Range: &Range{0, DefaultMaxElements, 1}}, ""},
		"too long a range":         {Column{Dtype: rangeDtype, Range: &Range{0, DefaultMaxElements + 1, 1}}, "MaxElements"},
		"an index of other length": {Series{integers(1, 2), integers(1)}, "a series of 2 values with an index of 1"},
		"an invalid index":         {Series{integers(1, 2), bad}, "with a mask of 1"}, "invalid values": {Series{Column: bad}, "with a mask of 1"},
		"a series": {Series{Column: integers(1, 2)}, ""}, "index": {Index{integers(1)}, ""}, "bad index": {Index{bad}, "with a mask of 1"},
		"a table":                 {Table{Columns: []Column{integers(1), integers(2)}}, ""},
		"a table of other length": {Table{Columns: []Column{integers(1), integers(2, 3)}}, "a table of 1 rows with a column or index of 2 values"},
		"a table's index":         {Table{Columns: []Column{integers(1)}, Index: integers(1, 2)}, "a table of 1 rows with a column or index of 2 values"},
		"a table's bad index":     {Table{Columns: []Column{integers(1, 2)}, Index: bad}, "with a mask of 1"},
		"a table's bad column":    {Table{Columns: []Column{integers(1, 2), bad}}, "with a mask of 1"},
		"a table's bad labels":    {Table{Columns: []Column{integers(1, 2), integers(1, 2)}, Labels: &bad}, "with a mask of 1"},
	} {
		x := tt.x
		if c, ok := x.(Column); ok {
			x = Index{c}
		}
		if _, err := Marshal(x); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, tt.want)
		}
	}
}

// TestInvalidPayloads checks that a program cannot send what this package would refuse to send.
func TestInvalidPayloads(t *testing.T) {
	t.Parallel()
	good, long, bad := columnOfTest(t, integers(1)), columnOfTest(t, integers(1, 2)), columnOfTest(t, integers(1))
	bad.Mask = []byte{0, 1}
	unnamed := good
	unnamed.Name = nil
	for name, tt := range map[string]struct {
		kind Kind
		p    any
		want string
	}{
		"series": {KindSeries, seriesPayload{good, good}, ""}, "bad values": {KindSeries, seriesPayload{bad, good}, "a mask of 2"}, "bad index": {KindSeries, seriesPayload{good, bad}, "a mask of 2"},
		"another length": {KindSeries, seriesPayload{long, good}, "a column of 2 values with an index of 1"}, "index": {KindIndex, good, ""}, "a bad index": {KindIndex, bad, "a mask of 2"},
		"table":       {KindTable, tablePayload{Columns: []columnPayload{good}, Index: good}, ""},
		"bad column":  {KindTable, tablePayload{Columns: []columnPayload{good, bad}, Index: good}, "a mask of 2"},
		"table index": {KindTable, tablePayload{Columns: []columnPayload{good}, Index: bad}, "a mask of 2"},
		"long column": {KindTable, tablePayload{Columns: []columnPayload{long}, Index: good}, "a column of 2 values with an index of 1"},
		"labels":      {KindTable, tablePayload{Columns: []columnPayload{unnamed}, Index: good, Labels: &good}, ""},
		"few labels":  {KindTable, tablePayload{Columns: []columnPayload{unnamed}, Index: good, Labels: &long}, "a table of 1 columns with labels for 2"},
		"names, too":  {KindTable, tablePayload{Columns: []columnPayload{good}, Index: good, Labels: &good}, "whose columns have names, too"},
		"bad labels":  {KindTable, tablePayload{Columns: []columnPayload{unnamed}, Index: good, Labels: &bad}, "a mask of 2"},
		"image":       {KindImage, imagePayload{Width: 1, Height: 1, Mode: "I", Raw: make([]byte, 4)}, ""},
		"no image":    {KindImage, imagePayload{Width: 1, Height: 1, Mode: "I", Raw: make([]byte, 3)}, "with 3 bytes"},
	} {
		payload, err := Marshal(tt.p)
		must.Do(t, err)
		doc := documentStart + `{"$":"` + string(tt.kind) + `","value":` + string(payload[len(documentStart):len(payload)-len(documentEnd)]) + "}" + documentEnd
		var got any
		err = Unmarshal([]byte(doc), &got)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v and error %v, want one with %q", name, got, err, tt.want)
		}
	}
}

// columnOfTest returns the payload of a valid column.
func columnOfTest(t *testing.T, c Column) columnPayload {
	t.Helper()
	p, err := c.payload()
	must.Do(t, err)
	return p
}

// TestImages checks the sizes of images against their bytes, and the decoding of a PNG.
func TestImages(t *testing.T) {
	t.Parallel()
	picture := image.NewNRGBA(image.Rect(0, 0, 2, 1))
	picture.Set(0, 0, color.White)
	picture.Set(1, 0, color.NRGBA{1, 2, 3, 255})
	m, err := ImageOf(picture)
	if err != nil || m.Width != 2 || m.Height != 1 || m.Mode != "RGB" {
		t.Fatalf("got %+v and error %v", m, err)
	}
	if out, err := m.Decode(); err != nil || out.Bounds() != picture.Bounds() || color.NRGBAModel.Convert(out.At(1, 0)) != (color.NRGBA{1, 2, 3, 255}) {
		t.Errorf("got %v and error %v, want the picture", out, err)
	}
	clear := image.NewNRGBA(image.Rect(0, 0, 1, 1))
	if m, err := ImageOf(clear); err != nil || m.Mode != "RGBA" {
		t.Errorf("of a transparent picture: got the mode %s and error %v", m.Mode, err)
	}
	broken := m
	broken.PNG = m.PNG[:len(m.PNG)-20]
	wide, high, both := m, m, m
	wide.Width, high.Height, both.Raw = 3, 2, []byte{}
	for name, tt := range map[string]struct {
		m    Image
		want string
	}{
		"no PNG": {Image{Width: 1, Height: 1, Mode: "I", Raw: make([]byte, 4)}, "of the mode \"I\" has no PNG"}, "garbage": {Image{Width: 1, Height: 1, PNG: []byte("x")}, "not a PNG"},
		"cut": {broken, "decode an image of 2x1"}, "wide": {wide, "another size"}, "high": {high, "another size"}, "both": {both, "another size"},
		"negative width": {Image{Width: -1, PNG: m.PNG}, "an image of -1x0"}, "negative height": {Image{Height: -1, PNG: m.PNG}, "an image of 0x-1"},
		"long mode": {Image{Width: 2, Height: 1, Mode: strings.Repeat("m", 17), PNG: m.PNG}, "an image of 2x1"}, "large": {Image{Width: 1 << 20, Height: 1 << 20, PNG: m.PNG}, "MaxPixels"},
	} {
		if out, err := tt.m.Decode(); out != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v and error %v, want one with %q", name, out, err, tt.want)
		}
	}
	for mode, bits := range map[string]int{"CMYK": 32, "F": 32, "I": 32, "RGBX": 32, "RGBa": 32, "YCbCr": 24, "LAB": 24, "HSV": 24, "La": 16, "PA": 16, "I;16": 16, "I;16L": 16, "I;16B": 16, "I;16N": 16} {
		for size := bits/8*6 - 1; size <= bits/8*6+1; size++ {
			if err := (Image{Width: 3, Height: 2, Mode: mode, Raw: make([]byte, size)}).check(6); (err == nil) != (size == bits/8*6) {
				t.Errorf("%s with %d bytes: got error %v", mode, size, err)
			}
		}
	}
	if err := (Image{Width: 3, Height: 2, Mode: "I", Raw: make([]byte, 24)}).check(5); !errors.As(err, new(*LimitError)) {
		t.Errorf("6 pixels of 5: got error %v", err)
	}
	if err := (Image{Width: 1, Height: 1, Mode: "RGB", Raw: make([]byte, 3)}).check(6); err == nil {
		t.Error("raw bytes of a mode that PNG has are accepted")
	}
}

// shout is a text that refuses some.
type shout string

func (s *shout) UnmarshalText(text []byte) error {
	if string(text) == "refused" {
		return errors.New("no such text")
	}
	*s = shout(strings.ToUpper(string(text)))
	return nil
}

// TestTextTargets checks which values reach the method of a text, and that its error reaches the caller.
func TestTextTargets(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		x     any
		want  shout
		fails string
	}{
		"str": {"abc", "ABC", ""}, "refused": {"refused", "", "UnmarshalText of state.shout: no such text"}, "UUID": {UUID{0xab, 15: 1}, "AB000000-0000-0000-0000-000000000001", ""},
		"Decimal": {Decimal("1.5e3"), "1.5E+3", ""}, "int": {7, "", "int"}, "bytes": {[]byte("abc"), "", "bytes"}, "float": {1.5, "", "float"}, "list": {[]string{"abc"}, "", "list"},
	} {
		doc, err := Marshal(tt.x)
		must.Do(t, err)
		var got shout
		err = Unmarshal(doc, &got)
		if got != tt.want || (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%s: got %q and error %v, want %q", name, got, err, tt.want)
		}
		if in := new(struct{ A shout }); tt.fails != "" {
			doc, _ := Marshal(map[string]any{"A": tt.x})
			if err := Unmarshal(doc, in); err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%s in a struct: got %+v and error %v", name, in, err)
			}
		}
	}
	var at time.Time
	for text, ok := range map[string]bool{"2026-01-02T03:04:05Z": true, "2026-01-02": false, "": false} {
		doc, _ := Marshal(text)
		if err := Unmarshal(doc, &at); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "no time in RFC 3339") {
			t.Errorf("time %q: got %v and error %v", text, at, err)
		}
	}
	if !at.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("got the time %v", at)
	}
}

// TestInvalidDtypes checks texts of types of elements that numpy does not write.
func TestInvalidDtypes(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"<f8": true, "|b1": true, "<c16": true, "<M8[ns]": true, `[["a","<i4"]]`: true, `[["a","<i4",[2]]]`: true, `[["a",[["b","|u1"]]]]`: true,
		"": false, "f8": false, "<f3": false, "<f8 ": false, "<z8": false, "[": false, "[]x": false, `[["a"]]`: false, `[["a","<i4",[2],3]]`: false, `[[1,"<i4"]]`: false, `[["a","<i4","x"]]`: false,
		`[["a","<q9"]]`: false, `{"a":1}`: false, "[" + strings.Repeat(" ", maxDtypeText): false,
	} {
		if _, err := parseDtype(text); (err == nil) != ok {
			t.Errorf("%.40q: got error %v, want it valid: %v", text, err, ok)
		}
	}
	valid := `[["a","<i4"]` + strings.Repeat(" ", maxDtypeText)
	for size, ok := range map[int]bool{maxDtypeText - 1: true, maxDtypeText: true, maxDtypeText + 1: false} {
		if _, err := parseDtype(valid[:size-1] + "]"); (err == nil) != ok {
			t.Errorf("a text of %d bytes: got error %v, want it valid: %v", size, err, ok)
		}
	}
}

// TestElements checks elements of kinds that tables rarely have.
func TestElements(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		dtype string
		data  []byte
		want  any
	}{
		"half": {"<f2", []byte{0, 0x3e}, 1.5}, "infinite": {"<f2", []byte{0, 0x7c}, math.Inf(1)}, "below": {">f2", []byte{0xfc, 0}, math.Inf(-1)}, "least": {"<f2", []byte{1, 0}, 0x1p-24},
		"complex": {"<c8", []byte{0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0}, complex(1.5, -2)}, "nested": {`[["a","|u1"],["b",[["c","|u1"]]]]`, []byte{1, 2}, Dict{{"a", uint64(1)}, {"b", Dict{{"c", uint64(2)}}}}},
	} {
		got, err := Array{Dtype: tt.dtype, Shape: []int{1}, Data: tt.data}.At(0)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %#v and error %v, want %#v", name, got, err, tt.want)
		}
	}
	if got, err := (Array{Dtype: "<f2", Shape: []int{1}, Data: []byte{1, 0x7c}}).At(0); err != nil || !math.IsNaN(got.(float64)) {
		t.Errorf("got %v and error %v, want NaN", got, err)
	}
}

// TestRationals checks the exact values of decimals, and those that have none.
func TestRationals(t *testing.T) {
	t.Parallel()
	for text, want := range map[Decimal]*big.Rat{"1.50": big.NewRat(3, 2), "-2e-1": big.NewRat(-1, 5), "0": new(big.Rat), "NaN": nil, "Infinity": nil, "-sNaN1": nil, "x": nil, "": nil} {
		got, err := text.Rat()
		if (err == nil) != (want != nil) || want != nil && got.Cmp(want) != 0 {
			t.Errorf("%q: got %v and error %v, want %v", text, got, err, want)
		}
	}
}

// TestRowsFail checks what cannot be a row of a table.
func TestRowsFail(t *testing.T) {
	t.Parallel()
	table := Table{Columns: []Column{integers(1, 2)}}
	type row struct {
		C int64 `py:"c"`
	}
	if got, err := Rows[row](table); err != nil || !reflect.DeepEqual(got, []row{{1}, {2}}) {
		t.Errorf("got %v and error %v", got, err)
	}
	_, scalar := Rows[int](table)
	_, scalars := TableOf([]int{1})
	_, text := Rows[struct {
		C string `py:"c"`
	}](table)
	short := Table{Columns: []Column{integers(1, 2), integers(1)}}
	short.Columns[0].Name = 7 // which no field has
	_, length := Rows[row](short)
	bad := Table{Columns: []Column{changed(func(c *Column) { c.Mask = []bool{true} })}}
	_, mask := Rows[row](bad)
	for want, err := range map[string]error{"rows of a table are structs, not int": scalar, "structs": scalars, "c[0]": text, "1 of 2 rows": length, "a mask of 1": mask} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	var deep any = "leaf"
	for range DefaultMaxDepth + 8 {
		deep = []any{deep}
	}
	if _, err := NewValue(deep); !errors.As(err, new(*LimitError)) {
		t.Errorf("a value that is too deep: got error %v", err)
	}
}
