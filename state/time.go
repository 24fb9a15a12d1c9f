package state

import (
	"strings"
	"sync"
	"time"
)

const (
	isoLayout     = "2006-01-02T15:04:05.000000"
	secondsPerDay = 24 * 60 * 60
	usPerSecond   = 1_000_000
	usPerDay      = secondsPerDay * usPerSecond
)

// zone returns the offset of a time. It also returns the name of its location if the IANA database
// contains that name. A program may use a name without a slash for its own fixed offset ("CET",
// "EST5"). zone returns such a name only if the zone of the database has the same rules at this
// time.
func zone(t time.Time) (name string, offset int) {
	_, offset = t.Zone()
	name = t.Location().String()
	if name == "UTC" || strings.Contains(name, "/") && isZoneName(name) {
		return name, offset
	}
	if location := loadZone(name); location != nil {
		known := t.In(location)
		start, end := t.ZoneBounds()
		knownStart, knownEnd := known.ZoneBounds()
		if _, at := known.Zone(); at == offset && start.Equal(knownStart) && end.Equal(knownEnd) {
			return name, offset
		}
	}
	if offset == 0 {
		return "UTC", 0 // Python's name
	}
	return "", offset
}

// located returns the time at which a clock shows wall. It uses the location called name if this
// machine has that location and its offset at that time is offset. Otherwise it uses a location
// with the fixed offset.
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

// maxZones limits the cached zones. The IANA database has fewer zones.
const maxZones = 1024

// zones caches the locations of one document. The names come from outside, and each load reads
// a file.
type zones map[string]*time.Location

func (z zones) load(name string) *time.Location {
	location, ok := z[name]
	if !ok && len(z) < maxZones {
		location = loadZone(name)
		z[name] = location
	}
	return location
}

// database caches loaded locations, and nil for unknown names.
var database struct {
	sync.Mutex
	zones
}

// loadZone is like time.LoadLocation, for a name that may come from untrusted data. It returns nil
// for an unknown name.
func loadZone(name string) *time.Location {
	if !isZoneName(name) {
		return nil
	}
	database.Lock()
	defer database.Unlock()
	location, ok := database.zones[name]
	if !ok {
		if database.zones == nil || len(database.zones) == maxZones {
			database.zones = zones{}
		}
		location, _ = time.LoadLocation(name) // nil for an unknown name
		database.zones[name] = location
	}
	return location
}

// isZoneName reports whether the IANA database may contain a zone with this name, and the name has
// the same meaning on every machine. The Python codec has the same rule.
func isZoneName(name string) bool {
	if len(name) == 0 || len(name) > 64 || name == "Local" || name == "localtime" || name == "posixrules" {
		return false
	}
	for i, c := range []byte(name) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789_+/-", rune(c))) {
			return false
		}
	}
	return true
}
