//go:build linux

package kernel

import (
	"strings"
	"testing"
)

// An exception about a module that the prepared Python has says how to get it; code
// that handles the exception itself sees it as it is.
func TestMissingModule(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		const hide = "import sys; sys.modules['PIL'] = None\n" // as if it were not there
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
		o := s.run(hide + "try:\n    import PIL\nexcept ImportError as error:\n    print('setup' in str(error))")
		if o.stdout != "False\n" || len(o.errors) > 0 {
			t.Errorf("handled: got %q and errors %+v, want False and none", o.stdout, o.errors)
		}
	})
}
