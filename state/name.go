package state

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// NameError reports a name that a variable of a state must not have.
type NameError struct {
	Name   string
	Reason string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("state: the name %.64q %s", e.Name, e.Reason)
}

// CheckName returns a *[NameError] if a variable of a state must not have this name. It refuses
// keywords and names with double underscores at both ends. It also refuses the names of builtins,
// because code could no longer use a builtin that a variable hides.
func CheckName(name string) error {
	reason := ""
	switch {
	case !isIdentifier(name):
		reason = "is not a Python identifier"
	case !norm.NFKC.IsNormalString(name):
		reason = "is one that Python would rewrite (it is not in the normal form NFKC)"
	case keywords[name]:
		reason = "is a Python keyword"
	case strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__"):
		reason = "is reserved by Python"
	case builtins[name]:
		reason = "is that of a Python builtin, which code could no longer reach"
	default:
		return nil
	}
	return &NameError{Name: name, Reason: reason}
}

func isIdentifier(name string) bool {
	for i, r := range name {
		switch {
		case r == '_' || unicode.IsLetter(r) || unicode.Is(unicode.Nl, r):
		case i > 0 && unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc):
		default:
			return false
		}
	}
	return name != ""
}

var (
	keywords = words(`
False None True and as assert async await break class continue def del elif else except finally for from
global if import in is lambda nonlocal not or pass raise return try while with yield
`)
	builtins = words(`
ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BlockingIOError BrokenPipeError
BufferError BytesWarning ChildProcessError ConnectionAbortedError ConnectionError ConnectionRefusedError
ConnectionResetError DeprecationWarning EOFError Ellipsis EncodingWarning EnvironmentError Exception
ExceptionGroup FileExistsError FileNotFoundError FloatingPointError FutureWarning GeneratorExit IOError
ImportError ImportWarning In IndentationError IndexError InterruptedError IsADirectoryError KeyError
KeyboardInterrupt LookupError MemoryError ModuleNotFoundError NameError NotADirectoryError NotImplemented
NotImplementedError OSError Out OverflowError PendingDeprecationWarning PermissionError ProcessLookupError
PythonFinalizationError RecursionError ReferenceError ResourceWarning RuntimeError RuntimeWarning
StopAsyncIteration StopIteration SyntaxError SyntaxWarning SystemError SystemExit TabError TimeoutError
TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError UnicodeError UnicodeTranslateError
UnicodeWarning UserWarning ValueError Warning ZeroDivisionError abs aiter all anext any ascii bin bool
breakpoint bytearray bytes callable chr classmethod compile complex copyright credits delattr dict dir display
divmod enumerate eval exec exit filter float format frozenset get_ipython getattr globals hasattr hash help
hex id input int isinstance issubclass iter len license list locals map max memoryview min next object oct
open ord pow print property quit range repr reversed round set setattr slice sorted staticmethod str sum super
tuple type vars zip
`)
)

func words(text string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}
