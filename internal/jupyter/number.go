package jupyter

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// Number is a number that a kernel wrote in JSON. JSON has no NaN and no infinities, so kernels write the
// strings "nan", "inf" and "-inf". For a missing number they write null, which becomes NaN.
type Number float64

// UnmarshalJSON refuses anything that is not a number.
func (n *Number) UnmarshalJSON(data []byte) error {
	number, text, err := ParseNumber(data)
	if err != nil {
		return err
	}
	if text != "" {
		return fmt.Errorf("%.32q is not a number", text)
	}
	*n = Number(number)
	return nil
}

// ParseNumber reads the JSON of a [Number]. If the JSON is a string and this string is not a number,
// text is the string.
func ParseNumber(data []byte) (number float64, text string, err error) {
	switch {
	case string(data) == "null":
		return math.NaN(), "", nil
	case len(data) == 0 || data[0] != '"':
		err = json.Unmarshal(data, &number)
		return number, "", err
	}
	if err := json.Unmarshal(data, &text); err != nil {
		return 0, "", err
	}
	switch strings.ToLower(text) {
	case "nan":
		return math.NaN(), "", nil
	case "inf", "infinity":
		return math.Inf(1), "", nil
	case "-inf", "-infinity":
		return math.Inf(-1), "", nil
	}
	return 0, text, nil
}

// UnmarshalJSON is like json.Unmarshal, but it reads each element of a []float64 as a [Number].
// This is necessary because null among numbers means a missing number, and must not become 0.
func UnmarshalJSON(data json.RawMessage, to any) error {
	floats, ok := to.(*[]float64)
	if !ok {
		return json.Unmarshal(data, to)
	}
	var numbers []Number
	if err := json.Unmarshal(data, &numbers); err != nil {
		return err
	}
	*floats = make([]float64, len(numbers))
	for i, n := range numbers {
		(*floats)[i] = float64(n)
	}
	return nil
}
