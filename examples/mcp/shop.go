package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/sandbox/agent"
)

// fruit describes one kind of fruit in the stock of the shop.
type fruit struct {
	name  string
	price float64
}

type query struct {
	Word string `json:"word" doc:"part of the name"`
}

type order struct {
	Fruit string `json:"fruit" doc:"its name, in the singular"`
}

// shop returns tools of an agent. The tools do not depend on the protocol.
func shop() []agent.Tool {
	stock := []fruit{{"blueberry", 0.1}, {"fig", 0.8}, {"strawberry", 0.25}}
	return []agent.Tool{
		agent.MustTool("find", "Lists the fruit whose name contains a word.", func(_ context.Context, q query) ([]string, error) {
			var found []string
			for _, f := range stock {
				if strings.Contains(f.name, q.Word) {
					found = append(found, f.name)
				}
			}
			return found, nil
		}),
		agent.MustTool("price", "Gives the price of one piece, in euros.", func(_ context.Context, o order) (float64, error) {
			i := slices.IndexFunc(stock, func(f fruit) bool { return f.name == o.Fruit })
			if i < 0 {
				return 0, fmt.Errorf("no price for %q", o.Fruit) // an exception in the code
			}
			return stock[i].price, nil
		}),
	}
}
