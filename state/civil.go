package state

import (
	"errors"
	"fmt"
	"time"
)

// Date is a Python date: a day without a time or a zone.
type Date struct {
	Year  int
	Month time.Month
	Day   int
}

// DateOf returns the day of a time in its location.
func DateOf(t time.Time) Date {
	year, month, day := t.Date()
	return Date{year, month, day}
}

// In returns the start of the day in a location.
func (d Date) In(location *time.Location) time.Time {
	return time.Date(d.Year, d.Month, d.Day, 0, 0, 0, 0, location)
}

func (d Date) String() string { return fmt.Sprintf("%04d-%02d-%02d", d.Year, d.Month, d.Day) }

func (d Date) form() (Kind, any, error) {
	if d.Year < 1 || d.Year > 9999 || DateOf(d.In(time.UTC)) != d {
		return "", nil, fmt.Errorf("a date that Python does not have: %s", d)
	}
	return KindDate, d.String(), nil
}

func dateOf(text string) (Date, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil || t.Year() < 1 {
		return Date{}, fmt.Errorf("malformed date %.40q", text)
	}
	return DateOf(t), nil
}

// TimeOfDay is a Python time: a time without a date.
type TimeOfDay struct {
	Hour, Minute, Second, Microsecond int
	// Zone is the time zone: "" for a naive time, "UTC", a name of the IANA database, or an
	// offset such as "+01:00".
	Zone string
	// Fold is true if the time occurs twice because clocks are set back, and this is the second
	// occurrence.
	Fold bool
}

func (t TimeOfDay) String() string {
	return fmt.Sprintf("%02d:%02d:%02d.%06d%s", t.Hour, t.Minute, t.Second, t.Microsecond, t.Zone)
}

const clockLayout = "15:04:05.000000"

type clockPayload struct {
	ISO  string `py:"iso"`
	Zone string `py:"zone,omitempty"`
	Fold bool   `py:"fold,omitempty"`
}

func (t TimeOfDay) form() (Kind, any, error) {
	p := clockPayload{fmt.Sprintf("%02d:%02d:%02d.%06d", t.Hour, t.Minute, t.Second, t.Microsecond), t.Zone, t.Fold}
	if _, err := timeOfDayOf(p); err != nil {
		return "", nil, err
	}
	return KindTime, p, nil
}

func timeOfDayOf(p clockPayload) (TimeOfDay, error) {
	t, err := parseExactly(clockLayout, p.ISO)
	if err != nil {
		return TimeOfDay{}, fmt.Errorf("malformed time %.40q", p.ISO)
	}
	if err := checkZone(p.Zone); err != nil {
		return TimeOfDay{}, err
	}
	return TimeOfDay{t.Hour(), t.Minute(), t.Second(), t.Nanosecond() / 1000, p.Zone, p.Fold}, nil
}

// parseExactly parses a time that a codec wrote. Unlike time.Parse, it refuses an hour of one digit
// and a comma before a fraction.
func parseExactly(layout, text string) (time.Time, error) {
	t, err := time.Parse(layout, text)
	if err == nil && t.Format(layout) != text {
		err = fmt.Errorf("%.40q is not in the form %s", text, layout)
	}
	return t, err
}

var offsetLayouts = []string{"-07:00", "-07:00:00"}

func checkZone(zone string) error {
	if _, ok := zoneOffset(zone); ok || zone == "" || isZoneName(zone) {
		return nil
	}
	return fmt.Errorf("%.40q is neither UTC, a zone of the IANA database, nor an offset", zone)
}

// zoneOffset returns the seconds of a zone in the form of an offset.
func zoneOffset(zone string) (int, bool) {
	for _, layout := range offsetLayouts {
		if t, err := time.Parse(layout, zone); err == nil && len(zone) == len(layout) {
			_, offset := t.Zone()
			return offset, true
		}
	}
	return 0, false
}

// zoneLocation returns the location of a zone, or an error if this machine does not have the zone.
func zoneLocation(zone string, load func(string) *time.Location) (*time.Location, error) {
	if zone == "" {
		return Naive, nil
	}
	if zone == "UTC" {
		return time.UTC, nil
	}
	if offset, ok := zoneOffset(zone); ok {
		return time.FixedZone("", offset), nil
	}
	if location := load(zone); location != nil {
		return location, nil
	}
	return nil, fmt.Errorf("the zone %.40q is not in this machine's time zone database", zone)
}

// zoneText returns the name of the location of t, or the offset of t if its location has no name
// that [zone] returns. It returns "" for a naive time.
func zoneText(t time.Time) string {
	if t.Location() == Naive {
		return ""
	}
	name, offset := zone(t)
	if name != "" {
		return name
	}
	sign := '+'
	if offset < 0 {
		sign, offset = '-', -offset
	}
	text := fmt.Sprintf("%c%02d:%02d", sign, offset/3600, offset/60%60)
	if offset%60 != 0 {
		text += fmt.Sprintf(":%02d", offset%60)
	}
	return text
}

// Timedelta is a Python timedelta. Its range is wider than that of time.Duration, which ends at 292
// years. If the target does not determine a type, a value beyond 292 years is decoded into a
// Timedelta, and any other value into a time.Duration.
type Timedelta struct {
	// Days may be negative. Seconds and Microseconds are never negative, as in Python.
	Days, Seconds, Microseconds int64
}

// TimedeltaOf returns a duration as a Timedelta, truncated to microseconds.
func TimedeltaOf(d time.Duration) Timedelta {
	us := d.Microseconds()
	days, rest := us/usPerDay, us%usPerDay
	if rest < 0 {
		days, rest = days-1, rest+usPerDay
	}
	return Timedelta{days, rest / usPerSecond, rest % usPerSecond}
}

const maxTimedeltaDays = 999_999_999

// Duration returns the value as a time.Duration, and false if it is beyond 292 years.
func (d Timedelta) Duration() (time.Duration, bool) {
	const maxDays = (1<<63-1)/(usPerDay*1000) + 1
	if d.Days > maxDays || d.Days < -maxDays {
		return 0, false
	}
	us := d.Days*usPerDay + d.Seconds*usPerSecond + d.Microseconds
	return time.Duration(us) * time.Microsecond, us <= (1<<63-1)/1000 && us >= (-1<<63)/1000
}

func (d Timedelta) check() error {
	if d.Days > maxTimedeltaDays || d.Days < -maxTimedeltaDays || d.Seconds < 0 || d.Seconds >= secondsPerDay || d.Microseconds < 0 || d.Microseconds >= usPerSecond {
		return fmt.Errorf("a timedelta that Python does not have: %d days, %d seconds, %d microseconds", d.Days, d.Seconds, d.Microseconds)
	}
	return nil
}

// Timestamp is a pandas Timestamp, with nanoseconds. A plain time.Time is sent as a datetime
// instead.
type Timestamp struct {
	Time time.Time
	// Unit is the resolution: "s", "ms", "us" or "ns". Empty means "ns".
	Unit string
	// Pytz reports whether Python's zone object comes from the package pytz. pandas 2 uses pytz if a
	// program gives the name of a zone. Otherwise the zone object comes from zoneinfo. pandas treats
	// the two as different types.
	Pytz bool
}

type timestampPayload struct {
	Value int64  `py:"value"`
	Unit  string `py:"unit"`
	Zone  string `py:"zone,omitempty"`
	Pytz  bool   `py:"pytz,omitempty"`
}

func (t Timestamp) form() (Kind, any, error) {
	p := timestampPayload{Unit: t.Unit, Zone: zoneText(t.Time)}
	p.Pytz = t.Pytz && p.Zone != ""
	if p.Unit == "" {
		p.Unit = "ns"
	}
	step := int64(stepOf(p.Unit))
	if step == 0 || step > int64(time.Second) {
		return "", nil, fmt.Errorf("a Timestamp with the unit %.16q", t.Unit)
	}
	perSecond, seconds := int64(time.Second)/step, t.Time.Unix()
	p.Value = seconds*perSecond + int64(t.Time.Nanosecond())/step
	if back := floorDiv(p.Value, perSecond); back != seconds {
		return "", nil, fmt.Errorf("the time %s is out of the range of a Timestamp in %s", t.Time, p.Unit)
	}
	return KindTimestamp, p, nil
}

func timestampOf(p timestampPayload) (Timestamp, error) {
	step := stepOf(p.Unit)
	if step == 0 || step > time.Second {
		return Timestamp{}, fmt.Errorf("a Timestamp with the unit %.16q", p.Unit)
	}
	if err := checkZone(p.Zone); err != nil {
		return Timestamp{}, err
	}
	location, err := zoneLocation(p.Zone, loadZone)
	if err != nil {
		return Timestamp{}, err
	}
	t, ok := unitTime(p.Value, p.Unit, 1)
	if !ok {
		return Timestamp{}, errors.New("a Timestamp out of range")
	}
	return Timestamp{t.In(location), p.Unit, p.Pytz}, nil
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }

// stepOf returns the length of a numpy unit. It returns 0 for units without a fixed length and
// for units below a nanosecond.
func stepOf(unit string) time.Duration {
	switch unit {
	case "ns":
		return time.Nanosecond
	case "us":
		return time.Microsecond
	case "ms":
		return time.Millisecond
	case "s":
		return time.Second
	case "m":
		return time.Minute
	case "h":
		return time.Hour
	case "D":
		return 24 * time.Hour
	case "W":
		return 7 * 24 * time.Hour
	}
	return 0
}

// maxUnixSeconds keeps the arithmetic of package time from overflowing.
const maxUnixSeconds = 1 << 56

// unitTime returns a time in UTC: the beginning of 1970 plus value times multiple units.
func unitTime(value int64, unit string, multiple int64) (time.Time, bool) {
	if multiple < 1 || multiple > 1<<31 || value > (1<<63-1)/multiple || value < (-1<<63)/multiple {
		return time.Time{}, false
	}
	value *= multiple
	switch unit {
	case "Y":
		return time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(int(value), 0, 0), value < 1<<31 && value > -1<<31
	case "M":
		return time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, int(value), 0), value < 1<<31 && value > -1<<31
	}
	step := stepOf(unit)
	switch {
	case step == 0:
		return time.Time{}, false
	case step < time.Second:
		perSecond := int64(time.Second / step)
		return time.Unix(floorDiv(value, perSecond), floorMod(value, perSecond)*int64(step)).UTC(), true
	}
	perStep := int64(step / time.Second)
	if value > maxUnixSeconds/perStep || value < -maxUnixSeconds/perStep {
		return time.Time{}, false
	}
	return time.Unix(value*perStep, 0).UTC(), true
}
