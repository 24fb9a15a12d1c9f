package control

import (
	"net/http"
	"strconv"

	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// pageOf returns the page of a list that a request asks for, and says in the answer where
// the next one begins. list returns what is behind a position, or from the first one on for
// nil, and at most limit of it.
func pageOf[T any](w http.ResponseWriter, query *query, list func(after *ordered.Position, limit int) []T, at func(*T) ordered.Position) ([]T, error) {
	limit, err := pageLimit("limit", query.Get("limit"), maxPage)
	if err != nil {
		return nil, err
	}
	var after *ordered.Position
	if token := query.Get("nextToken"); token != "" {
		c, ascending, ok := decodeCursor(token)
		if !ok || ascending {
			return nil, errBadToken
		}
		after = (*ordered.Position)(&c)
	}
	page := list(after, limit+1)
	if len(page) > limit {
		page = page[:limit]
		w.Header().Set(protocol.HeaderNextToken, cursor(at(&page[limit-1])).encode(false))
	}
	return page, nil
}

// comparePaged orders by time, newest first, then by id.
func comparePaged(a, b cursor) int {
	return ordered.Position(a).Compare(ordered.Position(b))
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
