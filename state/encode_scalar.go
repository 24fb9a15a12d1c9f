package state

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"
)

func (e *encoder) float(f float64) {
	switch {
	case math.IsNaN(f):
		e.text(`{"$":"float","text":"nan"}`)
	case math.IsInf(f, 1):
		e.text(`{"$":"float","text":"inf"}`)
	case math.IsInf(f, -1):
		e.text(`{"$":"float","text":"-inf"}`)
	default:
		e.buf = appendFloat(e.buf, f)
	}
}

func (e *encoder) bigInt(n *big.Int) error {
	if n.IsInt64() {
		e.buf = strconv.AppendInt(e.buf, n.Int64(), 10)
		return nil
	}
	if n.BitLen() > 4*DefaultMaxIntDigits {
		return &LimitError{Limit: "MaxIntDigits", Max: DefaultMaxIntDigits}
	}
	e.text(`{"$":"int","hex":"`)
	e.buf = n.Append(e.buf, 16)
	e.text(`"}`)
	return nil
}

func (e *encoder) string(s string) error {
	switch {
	case !e.room(len(s)):
		return errLarge()
	case utf8.ValidString(s):
		e.buf = appendString(e.buf, s)
	case isSurrogatePass(s):
		e.text(`{"$":"str","base64":`)
		e.buf = appendBase64(e.buf, []byte(s))
		e.text(`}`)
	default:
		return &UnsupportedValueError{Reason: "a string that is not UTF-8: send it as []byte"}
	}
	return nil
}

func (e *encoder) bytes(b []byte) error {
	if !e.room(len(b)) {
		return errLarge()
	}
	e.text(`{"$":"bytes","base64":`)
	if e.detached && len(b) >= blobFrom {
		b = bytes.Clone(b)
	}
	e.leaf(b)
	e.text(`}`)
	return nil
}

func (e *encoder) time(t time.Time) error {
	if year := t.Year(); year < 1 || year > 9999 {
		return &UnsupportedValueError{Reason: fmt.Sprintf("a time in year %d: Python has the years 1 to 9999", year)}
	}
	e.text(`{"$":"datetime","iso":"`)
	e.buf = t.AppendFormat(e.buf, isoLayout)
	e.text(`"`)
	if t.Location() != Naive {
		name, offset := zone(t)
		if offset <= -secondsPerDay || offset >= secondsPerDay {
			return &UnsupportedValueError{Reason: fmt.Sprintf("a time %d seconds from UTC: Python allows less than a day", offset)}
		}
		e.text(`,"offset":`)
		e.buf = strconv.AppendInt(e.buf, int64(offset), 10)
		if name != "" {
			e.text(`,"zone":`)
			e.buf = appendString(e.buf, name)
		}
	}
	e.text(`}`)
	return nil
}

func (e *encoder) timedelta(d Timedelta) error {
	if err := d.check(); err != nil {
		return refused(err)
	}
	e.text(`{"$":"timedelta","days":`)
	e.buf = strconv.AppendInt(e.buf, d.Days, 10)
	e.text(`,"seconds":`)
	e.buf = strconv.AppendInt(e.buf, d.Seconds, 10)
	e.text(`,"microseconds":`)
	e.buf = strconv.AppendInt(e.buf, d.Microseconds, 10)
	e.text(`}`)
	return nil
}

func (e *encoder) rat(n *big.Rat) error { return e.form(KindFraction, []*big.Int{n.Num(), n.Denom()}) }
