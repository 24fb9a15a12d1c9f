// Package edge finds the sandbox and the port that a request is for, by Host, by
// header or, for a file URL that names none, by its signature, and carries the
// request there: unchanged, streaming both ways, websockets included. What is
// for no sandbox goes to the API, if the Host is one that the API answers to.
//
// It opens connections through a function of each sandbox, and knows nothing
// of what a sandbox is.
package edge
