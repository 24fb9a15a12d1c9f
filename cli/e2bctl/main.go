// Command e2bctl drives E2B-style sandboxes from a shell.
package main

func main() {}
