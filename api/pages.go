package api

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"strconv"
)

// pages iterates over the items of a list. It fetches each page when it is needed. The argument
// page returns the items of the page with the given token, and the token of the next page; an
// empty token means the last page.
func pages[T any](what, first string, page func(token string) (items []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for token := first; ; {
			items, next, err := page(token)
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			if next == token {
				yield(none, fmt.Errorf("api: list %s: the service sent the same page twice", what))
				return
			}
			token = next
		}
	}
}

// list fetches a whole list from the service. what names an item in errors.
func list[T any](ctx context.Context, c *Client, what string, r call) ([]T, answer, error) {
	var all []*T
	head, err := c.do(ctx, r, &all)
	if err != nil {
		return nil, answer{}, err
	}
	items, err := values(what, all)
	return items, head, err
}

// values returns the items of a list. A null item is an error. The argument what names an item in
// the error's text.
func values[T any](what string, list []*T) ([]T, error) {
	if list == nil {
		return nil, nil
	}
	all := make([]T, len(list))
	for i, one := range list {
		if one == nil {
			return nil, fmt.Errorf("api: the service's answer has %s that is null", what)
		}
		all[i] = *one
	}
	return all, nil
}

// setPage adds the parameters of one page of a list to query.
func setPage(query url.Values, limit int, token string) {
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	if token != "" {
		query.Set("nextToken", token)
	}
}
