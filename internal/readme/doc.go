// Package readme contains the tests of the READMEs and of the pages of .github:
// it runs their programs and checks their command lines, links and length.
package readme
