package template

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// copyLine is a COPY or ADD of a Dockerfile. Each of its sources is a step.
type copyLine struct{ line int }

// isPattern reports whether services take a source for a pattern.
func isPattern(source string) bool { return strings.ContainsAny(source, "*?[") }

// copied returns the files that a step copies. It returns none if the step's source is
// a pattern without a match, and another source of the same COPY is there.
func (s *source) copied(of step, all []step) ([]file, error) {
	if of.copyLine == nil {
		return s.find(of.Args[0])
	}
	files, err := s.find(of.Args[0])
	switch {
	case err == nil:
		return files, nil
	case errors.Is(err, fs.ErrNotExist) && isPattern(of.Args[0]) && s.hasOther(of, all):
		return nil, nil
	}
	return nil, fmt.Errorf("Dockerfile: line %d: %w", of.copyLine.line, err)
}

// hasOther reports whether another source of the step's COPY is there. A here-document
// always is.
func (s *source) hasOther(of step, all []step) bool {
	return slices.ContainsFunc(all, func(other step) bool {
		if other.copyLine != of.copyLine {
			return false
		}
		if other.copy == nil {
			return true
		}
		_, err := s.find(other.Args[0])
		return err == nil
	})
}
