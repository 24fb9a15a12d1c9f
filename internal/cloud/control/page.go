package control

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// pageOf returns the page of a list that a request asks for, and says in the answer where
// the next one begins. The list is in the order of comparePaged, newest first.
func pageOf[T any](w http.ResponseWriter, query *query, all []T, of func(T) cursor) ([]T, error) {
	limit, err := pageLimit("limit", query.Get("limit"), maxPage)
	if err != nil {
		return nil, err
	}
	if token := query.Get("nextToken"); token != "" {
		after, ascending, ok := decodeCursor(token)
		if !ok || ascending {
			return nil, errBadToken
		}
		begin := slices.IndexFunc(all, func(one T) bool { return comparePaged(after, of(one)) < 0 })
		if begin < 0 {
			begin = len(all)
		}
		all = all[begin:]
	}
	if len(all) > limit {
		all = all[:limit]
		w.Header().Set(protocol.HeaderNextToken, of(all[limit-1]).encode(false))
	}
	return all, nil
}

var errBadToken = errorf(http.StatusBadRequest, "Invalid next token")

// pageLimit returns how many elements a page may have, as the parameter of that name asks;
// unless is for one that does not.
func pageLimit(name, text string, unless int) (int, error) {
	if text == "" {
		return unless, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > maxPage {
		return 0, invalid("%s must be between 1 and %d", name, maxPage)
	}
	return limit, nil
}

// comparePaged orders by time, newest first, then by id.
func comparePaged(a, b cursor) int {
	return lifecycle.Position(a).Compare(lifecycle.Position(b))
}
