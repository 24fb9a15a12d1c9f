package sandbox

import "iter"

// eachAs iterates over a list of package api. It converts each item with as.
func eachAs[A, B any](list iter.Seq2[A, error], as func(A) B) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		for one, err := range list {
			var item B
			if err == nil {
				item = as(one)
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

// allAs converts each item of a list of package api with as, and returns the converted list.
func allAs[A, B any](list []A, as func(A) B) []B {
	if list == nil {
		return nil
	}
	all := make([]B, len(list))
	for i, one := range list {
		all[i] = as(one)
	}
	return all
}
