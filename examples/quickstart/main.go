// Command quickstart does one real job in a sandbox.
package main

func main() {}
