// Package control answers the REST API of the local cloud.
package control
