//go:build linux && race

package room

const raceDetector = true
