// Package broken does not compile.
package broken

import "testing"

func TestNothing(*testing.T) { nothingOfThatName() }
