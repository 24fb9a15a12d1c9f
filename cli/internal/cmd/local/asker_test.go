package local

import (
	"strings"
	"testing"
)

// Nothing but the bytes of a name reaches the terminal.
func TestASCIIHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"pypi.org": "pypi.org", "PyPI.org": "pypi.org", "_dmarc.a-b.test": "_dmarc.a-b.test", "192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::1",
		"пример.test": "xn--e1afmkfd.test", "аpple.com": "xn--pple-43d.com", // a Cyrillic letter
		"a\x1b[2Jb.test": "", "a\nb.test": "", "a b.test": "", "a\u202eb\x00.test": "", "\xff.test": "", "": "", "fe80::1%\x1b[2J": "", strings.Repeat("a.", 127) + "b": "",
	} {
		if got, ok := asciiHost(host); ok != (want != "") || ok && got != want {
			t.Errorf("%q: got %q, %t, want %q", host, got, ok, want)
		}
	}
}
