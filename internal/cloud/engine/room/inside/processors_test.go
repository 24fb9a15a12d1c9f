//go:build linux

package inside

import "testing"

func TestOnlyProcessors(t *testing.T) {
	t.Parallel()
	const zero, one, two, machine = "processor\t: 0\nmodel name\t: A\n\n", "processor\t: 1\nmodel name\t: A\n\n", "processor\t: 2\n\n", "Hardware\t: 1\n"
	for _, tt := range []struct {
		text       string
		processors []int
		want       string
	}{
		{zero + one + two, []int{0, 2}, zero + two},
		{zero + one + machine, []int{1}, one + machine},
		{zero + one, []int{0, 1}, zero + one},
		{"", []int{0}, ""},
	} {
		if got := string(onlyProcessors([]byte(tt.text), tt.processors)); got != tt.want {
			t.Errorf("%v of %q: got %q, want %q", tt.processors, tt.text, got, tt.want)
		}
	}
}
