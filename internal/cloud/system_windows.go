package cloud

import (
	"errors"
	"math"

	"golang.org/x/sys/windows"
)

// openFiles returns the maximum number of open files of this process. Windows has no limit, so
// it returns the largest number.
func openFiles() (uint64, error) { return math.MaxUint64, nil }

// lacksAddress reports whether listening failed because this machine does not have the address.
func lacksAddress(err error) bool {
	return errors.Is(err, windows.WSAEADDRNOTAVAIL) || errors.Is(err, windows.WSAEAFNOSUPPORT)
}
