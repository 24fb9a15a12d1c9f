package engine

import "time"

// What is started anew after its death is given up after MaxDeaths of them within DeathsWithin.
const (
	MaxDeaths    = 3
	DeathsWithin = time.Minute
)

// Deaths are the latest deaths of what is started anew each time. The zero value has none.
type Deaths struct{ latest []time.Time }

// TooMany notes a death at a time, and reports whether it is to be the last one.
func (d *Deaths) TooMany(at time.Time) bool {
	d.latest = append(d.latest, at)
	if len(d.latest) < MaxDeaths {
		return false
	}
	first := d.latest[0]
	d.latest = d.latest[1:]
	return at.Sub(first) <= DeathsWithin
}
