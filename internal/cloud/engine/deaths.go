package engine

import "time"

// Bounds of restarts. A component is restarted after it dies. After MaxDeaths deaths within
// DeathsWithin, it is not restarted again.
const (
	MaxDeaths    = 3
	DeathsWithin = time.Minute
)

// Deaths records the latest deaths of a component that is restarted after each death. The zero value
// is an empty record.
type Deaths struct{ latest []time.Time }

// TooMany records a death at the given time, and reports whether the caller should give up the
// component.
func (d *Deaths) TooMany(at time.Time) bool {
	d.latest = append(d.latest, at)
	if len(d.latest) < MaxDeaths {
		return false
	}
	first := d.latest[0]
	d.latest = d.latest[1:]
	return at.Sub(first) <= DeathsWithin
}
