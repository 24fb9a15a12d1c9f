// Program may write and end.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Println("written")
	other()
	os.Exit(0)
}
