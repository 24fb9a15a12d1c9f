package packaging

import "testing"

func TestPythonVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"0.1.0": "0.1.0", "1.2.3-rc.1": "1.2.3rc1", "1.2.3-rc1": "1.2.3rc1", "1.2.3-alpha.2": "1.2.3a2", "1.2.3-beta": "1.2.3b",
		"0.0.0-20261129014105-8b66269e0000": "0.0.0.dev20261129014105", "0.1.1-0.20261129014105-8b66269e0000": "0.1.1.dev20261129014105", "1.2.3-other": "1.2.3.dev0",
	} {
		if got := pythonVersion(version); got != want {
			t.Errorf("%s is %s, want %s", version, got, want)
		}
	}
	for version, want := range map[string]string{"v0.1.0": "0.1.0", "(devel)": "0.0.0", "": "0.0.0", "v0.1.0+dirty": "0.1.0"} {
		b := Build{Version: version}
		if got := b.Release(); got != want {
			t.Errorf("the version %q is %s, want %s", version, got, want)
		}
	}
}
