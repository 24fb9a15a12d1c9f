package control

import (
	"net/http"
	"strconv"

	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// pageOf returns the requested page of a list, and sets the token of the next page in the
// answer. list returns at most limit elements after a position. If the position is nil, list begins
// with the first element.
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

// pageLimit parses the maximum number of elements on a page. name is the parameter's name in
// errors. If text is empty, pageLimit returns the value in unless.
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
