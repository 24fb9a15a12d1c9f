package kernelconn

import "errors"

var (
	// ErrNotSent means that the code did not leave this machine.
	ErrNotSent = errors.New("the code was not sent")
	// ErrSameContext is returned by a call that needs a context whose code is waiting
	// for that very call.
	ErrSameContext = errors.New("the code of this context waits for the tool that makes this call: use another context or sandbox")
)
