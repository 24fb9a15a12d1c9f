// Package dockertest provides tests with their own Docker daemon, an image, and the program that is
// the first process of containers. It does not touch the user's Docker.
package dockertest
