// Package dockertest has, for tests, a Docker daemon of their own, an image and the program
// that is the first process of containers. Nothing of the user's own Docker is touched.
package dockertest
