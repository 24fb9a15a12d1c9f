package seeds_test

import (
	"testing"

	"example.com/seeds/helped"
)

func TestOutside(t *testing.T) {
	helped.Fatal(t, "%d", "text") // want:printf
	helped.Old()                  // want:SA1019
}
