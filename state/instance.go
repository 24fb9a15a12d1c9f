package state

import (
	"fmt"
	"reflect"
	"strings"
)

// Instance is a value of a class that extends a builtin type, or that consists of named fields.
// It can be decoded into any target of its Value: a Counter into a map, a dataclass or named
// tuple into a struct, an IntEnum into an int.
//
// To recreate an Instance, a kernel must have its class, either imported or defined in a cell. The
// kernel sets the fields directly and does not call __init__ and __post_init__.
type Instance struct {
	// Kind is one of these:
	//
	//   - KindSubclass: Value is a bool, int, float, str, bytes, list, tuple, set,
	//     frozenset or dict, or an Instance for a subclass of defaultdict. Attributes
	//     that the base does not have are not kept. OrderedDict and Counter are of this
	//     kind. Value is the base's own content, even if the class overrides the base's
	//     methods.
	//   - KindDefaultDict: Type is the factory, "" for none; Value is a dict.
	//   - KindNamedTuple, KindDataclass: Value is a dict of the fields in order.
	//   - KindEnum: Value is the member's value.
	Kind Kind
	// Type is the class with its module, such as "collections.Counter". For an Enum, the name of the
	// member follows, as in "__main__.Color.RED".
	Type  string
	Value any
}

var instanceType = reflect.TypeFor[Instance]()

var instanceKinds = map[Kind]bool{KindSubclass: true, KindDefaultDict: true, KindNamedTuple: true, KindDataclass: true, KindEnum: true}

// Member returns the name of an Enum's member, and "" for a combination of
// flags.
func (i Instance) Member() string {
	if i.Kind != KindEnum {
		return ""
	}
	return i.Type[strings.LastIndexByte(i.Type, '.')+1:]
}

type instancePayload struct {
	Type  string `py:"type"`
	Value any    `py:"value"`
}

func (i Instance) form() (Kind, any, error) {
	if !instanceKinds[i.Kind] {
		return "", nil, fmt.Errorf("an Instance of the kind %.40q", i.Kind)
	}
	return i.Kind, instancePayload{i.Type, i.Value}, nil
}

const instanceValue = `,"value":`

// instanceHead reads the part of an instance before its value, and returns the class.
func (d *decoder) instanceHead() (class string, err error) {
	if err := d.enter(); err != nil {
		return "", err
	}
	if err := d.literal(`{"type":`); err != nil {
		return "", err
	}
	if class, err = d.string(); err != nil {
		return "", err
	}
	return class, d.literal(instanceValue)
}

func (d *decoder) instance(kind Kind) (any, error) {
	class, err := d.instanceHead()
	if err != nil {
		return nil, err
	}
	n, err := d.next()
	if err != nil {
		return nil, err
	}
	x := Instance{Kind: kind, Type: class}
	if n.kind == KindDict { // the order of fields is part of the type
		x.Value, err = d.dictOf(n)
	} else {
		x.Value, err = d.natural(n)
	}
	if err != nil {
		return nil, err
	}
	return x, d.instanceEnd()
}

func (d *decoder) instanceEnd() error {
	d.depth--
	return d.literal("}")
}
