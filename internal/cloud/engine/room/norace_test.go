//go:build linux && !race

package room

const raceDetector = false
