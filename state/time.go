package state

import (
	"strings"
	"time"
)

const (
	isoLayout     = "2006-01-02T15:04:05.000000"
	secondsPerDay = 24 * 60 * 60
	usPerSecond   = 1_000_000
	usPerDay      = secondsPerDay * usPerSecond
)

// zone returns the offset of a time, and the name of its location if that can
// only be from the IANA database: names that a program invents for a fixed
// offset ("CET", "EST5") have no slash, and may have other rules there.
func zone(t time.Time) (name string, offset int) {
	_, offset = t.Zone()
	if name = t.Location().String(); name != "UTC" && !strings.Contains(name, "/") {
		name = ""
	}
	return name, offset
}

// located returns the time at a wall clock reading: in the named location if
// that is known and has this offset then, otherwise in a fixed one.
func located(wall time.Time, offset int, name string, load func(string) *time.Location) time.Time {
	instant := wall.Add(-time.Duration(offset) * time.Second)
	if name == "UTC" && offset == 0 {
		return instant
	}
	if name != "" {
		if location := load(name); location != nil {
			if _, at := instant.In(location).Zone(); at == offset {
				return instant.In(location)
			}
		}
	}
	return instant.In(time.FixedZone(name, offset))
}

// zones loads locations by name, each only once: the names come from outside,
// and every load reads a file.
type zones map[string]*time.Location

// maxZones is more than the database has.
const maxZones = 1024

func (z zones) load(name string) *time.Location {
	location, ok := z[name]
	if !ok && len(z) < maxZones && strings.Contains(name, "/") {
		location, _ = time.LoadLocation(name) // nil when unknown
		z[name] = location
	}
	return location
}
