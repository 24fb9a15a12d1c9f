// Command goclient gets the URL of its argument.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	res, err := http.Get(os.Args[1]) //nolint:gosec,noctx // a test
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer res.Body.Close()
	_, _ = io.Copy(os.Stdout, res.Body)
}
