package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// sharedBytes is Python that makes values of many kinds from the same 131,072 bytes, by
// name, in makers. Kinds of missing libraries are left out.
const sharedBytes = `
import array, io
block = array.array("d", [i / 7 for i in range(16384)])
raw = block.tobytes()
makers = {
    "bytes": lambda: bytes(raw), "bytearray": lambda: bytearray(raw), "floats": lambda: block.tolist(),
    "view": lambda: memoryview(block), "view of rows": lambda: memoryview(raw).cast("B", (128, 1024)),
    "nested": lambda: {"deep": [block.tolist(), bytes(raw)]},
}
try:
    import numpy
    for name in ("<f8", ">f8", "<f4", ">f4", "<f2", "<i8", ">i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "<c16", "<c8", "|S8", "<M8[ns]", "<m8[s]", "|V8"):
        makers["array " + name] = lambda name=name: numpy.frombuffer(bytearray(raw), dtype=name)
    makers["array |b1"] = lambda: numpy.frombuffer(bytearray(raw), dtype="u1").astype(bool)
    makers["bytes of bools"] = lambda: makers["array |b1"]().tobytes()
    makers["array of records"] = lambda: numpy.frombuffer(bytearray(raw), dtype=[("a", "<i4"), ("b", "<f4")])
    makers["array of rows"] = lambda: numpy.frombuffer(bytearray(raw), dtype="<f8").reshape(128, 128)
    makers["array of columns"] = lambda: numpy.frombuffer(bytearray(raw), dtype="<f8").reshape((128, 128), order="F")
    import pandas
    makers["series"] = lambda: pandas.Series(makers["array <f8"]())
    makers["index"] = lambda: pandas.Index(makers["array <i8"]())
    makers["table"] = lambda: pandas.DataFrame({"x": makers["array <f8"](), "y": makers["array <i8"]()})
except ImportError:
    pass
try:
    import PIL.Image
    makers["image F"] = lambda: PIL.Image.frombytes("F", (128, 256), raw)
    makers["image I"] = lambda: PIL.Image.frombytes("I", (128, 256), raw)
    makers["image CMYK"] = lambda: PIL.Image.frombytes("CMYK", (128, 256), raw)
    def png():
        file = io.BytesIO()
        makers["image L"]().save(file, "PNG", compress_level=1)
        return file.getvalue()
    def noise():
        import hashlib
        return b"".join(hashlib.sha256(bytes([i % 256, i // 256])).digest() for i in range(4096))
    makers["image L"] = lambda: PIL.Image.frombytes("L", (512, 256), noise())
    makers["bytes of a picture"] = png
except ImportError:
    pass

def same(a, b):
    if isinstance(a, memoryview):
        return type(b) is bytes and a.tobytes() == b
    if type(a) is not type(b):
        return False
    if "numpy" in globals() and isinstance(a, numpy.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if "pandas" in globals() and isinstance(a, (pandas.DataFrame, pandas.Series, pandas.Index)):
        return a.equals(b)
    if "PIL" in globals() and isinstance(a, PIL.Image.Image):
        return (a.mode, a.size, a.tobytes()) == (b.mode, b.size, b.tobytes())
    return a == b
names = sorted(makers)
`

// TestSharedBytes sets each kind of value while the kernel has a value of each other kind
// with the same bytes, which therefore are not sent: both are right afterwards.
func TestSharedBytes(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	r := h.begin(t, &rs, Params{})
	mustExec(t, r, sharedBytes)
	value, err := r.Get(t.Context(), "names")
	must.Do(t, err)
	var names []string
	must.Do(t, value.Decode(&names))
	values := map[string]state.Value{}
	for _, name := range names {
		mustExec(t, r, fmt.Sprintf("_made = makers[%q]()", name))
		values[name], err = r.Get(t.Context(), "_made")
		must.Do(t, err)
	}
	r.Close()
	for _, held := range names {
		st := state.New()
		set(t, st, "held", values[held])
		r := h.begin(t, &rs, Params{State: st})
		r.Close()
		check := []string{fmt.Sprintf("assert same(makers[%q](), held)", held)}
		for i, name := range names {
			set(t, st, fmt.Sprintf("set%d", i), values[name])
			check = append(check, fmt.Sprintf("assert same(makers[%q](), set%d), %q", name, i, name+" set while the kernel had "+held))
		}
		r = h.begin(t, &rs, Params{State: st})
		mustExec(t, r, strings.Join(check, "\n"))
		for _, name := range changedNames(t, r) {
			if name == "held" || strings.HasPrefix(name, "set") {
				t.Errorf("with %s: %s changed, want no such change: the kernel has what was set", held, name)
			}
		}
		r.Close()
	}
}
