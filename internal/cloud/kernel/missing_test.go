//go:build linux

package kernel

import (
	"strings"
	"testing"
)

// An exception about a module that the prepared Python has names the way to get it.
// Code that handles the exception itself sees it unchanged.
func TestMissingModule(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		const hide = "import sys; sys.modules['PIL'] = None\n" // as if PIL were missing
		for _, test := range []struct{ code, advice string }{
			{hide + "import PIL", "run `e2bctl local setup` on the machine of the local cloud (local.Setup in Go) and start it again, or in this sandbox: pip install pillow"},
			{hide + "from PIL import Image", "pip install pillow"},
			{"sys.modules['sklearn'] = None\nfrom sklearn.svm import SVC", "run `e2bctl local setup --full` on the machine of the local cloud (local.Setup with WithFullPackages in Go) and start it again, or in this sandbox: pip install scikit-learn"},
			{"import no_such_module", ""},
			{"import json.no_such_module", ""},
			{"raise ModuleNotFoundError('PIL')", ""},
			{"raise ModuleNotFoundError(name='PIL')", ""},
		} {
			o := s.run(test.code)
			if len(o.errors) != 1 || o.errors[0].Name != "ModuleNotFoundError" {
				t.Errorf("%q: got errors %+v, want one ModuleNotFoundError", test.code, o.errors)
				continue
			}
			for _, text := range []string{o.errors[0].Value, strings.Join(o.errors[0].Traceback, "")} {
				if said := strings.Contains(text, "local setup"); said != (test.advice != "") || !strings.Contains(text, test.advice) {
					t.Errorf("%q: got %q, want the advice %q in it", test.code, text, test.advice)
				}
			}
		}
		// Libraries have exceptions of their own about missing modules.
		const gone = "import sys; sys.modules['openpyxl'] = sys.modules['jinja2'] = sys.modules['kaleido'] = sys.modules['nbformat'] = None\n"
		for _, test := range []struct{ code, advice string }{
			{"try:\n    import openpyxl\nexcept ImportError as e:\n    raise ImportError('Missing optional dependency. Use pip or conda to install it.') from e", "setup --full` on the machine of the local cloud (local.Setup with WithFullPackages in Go) and start it again, or in this sandbox: pip install openpyxl"},
			{"raise ImportError('`Import jinja2` failed. Install it')", "local setup` on the machine of the local cloud (local.Setup in Go) and start it again, or in this sandbox: pip install jinja2"},
			{"raise ValueError('Mime type rendering requires nbformat>=4.2.0 but it is not installed')", "pip install nbformat"},
			{"raise ValueError('\\nImage export requires the Kaleido package, which can be installed using pip:\\n\\n    $ pip install --upgrade kaleido\\n')", "pip install kaleido"},
			{"raise ImportError('cannot import name x from openpyxl')", ""},
			{"raise ValueError('openpyxl')", ""},
			{"raise ValueError('requires openpyxl', 2)", ""},
			{"raise KeyError('requires openpyxl')", ""},
			{"raise ImportError('this needs sys, json: install them')", ""},
			{"class E(ImportError):\n    def __str__(self): 1 / 0\nraise E('install openpyxl')", ""},
		} {
			o := s.run(gone + test.code)
			if len(o.errors) != 1 {
				t.Errorf("%q: got errors %+v, want one", test.code, o.errors)
				continue
			}
			if text := o.errors[0].Value; strings.Contains(text, "local setup") != (test.advice != "") || !strings.Contains(text, test.advice) {
				t.Errorf("%q: got %q, want the advice %q in it", test.code, text, test.advice)
			}
		}
		o := s.run(hide + "try:\n    import PIL\nexcept ImportError as error:\n    print('setup' in str(error))")
		if o.stdout != "False\n" || len(o.errors) > 0 {
			t.Errorf("handled: got %q and errors %+v, want False and none", o.stdout, o.errors)
		}
	})
}
