package cmdutil

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
)

// errDeclined means that the user answered no.
var errDeclined = errors.New("not confirmed, nothing was done")

// Confirm asks a question with the default answer no. Any answer but yes is an
// error.
func Confirm(ios *IOStreams, question string) error {
	fmt.Fprintf(ios.Err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(ios.In).ReadString('\n')
	if err != nil && answer == "" {
		return errDeclined
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errDeclined
}
