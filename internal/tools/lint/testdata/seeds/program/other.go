package main

import "fmt"

func other() {
	fmt.Println("written elsewhere") // want:forbidigo
}
