// Package helped has functions that linters must know about where it is imported.
package helped

import "testing"

func Fatal(t *testing.T, format string, values ...any) { t.Fatalf(format, values...) }

// Deprecated: use Fatal.
func Old() {}
