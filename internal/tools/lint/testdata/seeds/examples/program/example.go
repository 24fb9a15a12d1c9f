// Example may write in every file.
package main

import "fmt"

func main() { fmt.Println("written") }
