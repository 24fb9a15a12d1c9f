// Package readme contains the tests of the READMEs and of the pages in .github. The tests run the
// programs in these pages, and check the command lines, the links and the length.
package readme
