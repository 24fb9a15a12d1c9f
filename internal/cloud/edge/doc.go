// Package edge finds the sandbox and the port that a request is for, by Host, by
// header or, for a file URL that names none, by its signature, and forwards the
// request there: unchanged, streaming both ways, including websockets. A request
// for no sandbox goes to the API, if the Host is one that the API answers to.
//
// It opens connections through a function that each sandbox supplies, and knows
// nothing about what a sandbox is.
package edge
