package agent

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/state"
)

// jsonOf converts a value that was decoded into any to a value that encoding/json can encode.
func jsonOf(value any) (any, error) {
	switch value := value.(type) {
	case nil, bool, int64, *big.Int, string, []byte, time.Time, encoding.TextMarshaler:
		return value, nil
	case float64:
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return nil, fmt.Errorf("JSON has no %v", value)
		}
		return value, nil
	case state.Path:
		return value.Path, nil
	case state.Date, state.TimeOfDay, state.UUID:
		return fmt.Sprint(value), nil
	case []any:
		return jsonList(value)
	case state.Tuple:
		return jsonList(value)
	case map[string]any:
		object := make(map[string]any, len(value))
		for key, item := range value {
			var err error
			if object[key], err = jsonOf(item); err != nil {
				return nil, err
			}
		}
		return object, nil
	case state.Instance: // an OrderedDict, a dataclass or an Enum
		return jsonOf(value.Value)
	case state.Dict:
		object := make(map[string]any, len(value))
		for _, item := range value {
			key, ok := item.Key.(string)
			if !ok {
				return nil, errors.New("the keys of a dict have to be str")
			}
			object[key] = item.Value
		}
		return jsonOf(object)
	}
	return nil, fmt.Errorf("JSON has no %s: convert it to str, numbers, lists and dicts", strings.TrimPrefix(fmt.Sprintf("%T", value), "state."))
}

func jsonList(items []any) (any, error) {
	list := make([]any, len(items))
	for i, item := range items {
		var err error
		if list[i], err = jsonOf(item); err != nil {
			return nil, err
		}
	}
	return list, nil
}
