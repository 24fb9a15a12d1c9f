module example.com/seeds

go 1.26.0
