package state_test

import (
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/state"
)

func ExampleMarshal() {
	type Job struct {
		Name    string        `py:"name"`
		Timeout time.Duration `py:"timeout,omitempty"`
		Sizes   []int         `py:"sizes"`
	}
	doc, err := state.Marshal(Job{Name: "build", Sizes: []int{1, 2}})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(doc))
	var job Job
	if err := state.Unmarshal(doc, &job); err != nil {
		panic(err)
	}
	fmt.Println(job.Name, job.Sizes)
	// Output:
	// {"v":1,"value":{"name":"build","sizes":[1,2]}}
	// build [1 2]
}

func ExampleState() {
	st := state.New()
	if err := st.Set("prices", map[string]float64{"apple": 1.5}); err != nil {
		panic(err)
	}
	fmt.Println(st.Set("class", 1))
	fmt.Println(st.Set("done", make(chan struct{})))
	fmt.Println(st.Names())
	// Output:
	// state: the name "class" is a Python keyword
	// state: done: chan struct {} has no Python form
	// [prices]
}
