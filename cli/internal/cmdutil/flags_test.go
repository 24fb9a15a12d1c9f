package cmdutil

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// parsed returns a command with flags that were parsed from a command line.
func parsed(t *testing.T, add func(*cobra.Command), args ...string) *cobra.Command {
	t.Helper()
	cmd := &cobra.Command{Use: "some", SilenceErrors: true, SilenceUsage: true}
	add(cmd)
	must.Do(t, cmd.ParseFlags(args))
	return cmd
}

// settingsOf returns the settings that options of a local cloud make, field by field.
func settingsOf(options ...local.Option) string {
	settings := reflect.New(reflect.TypeFor[local.Option]().In(0).Elem())
	for _, option := range options {
		reflect.ValueOf(option).Call([]reflect.Value{settings})
	}
	return fmt.Sprintf("%+v", settings.Elem())
}

// TestFlagValues checks which texts each kind of flag accepts, and the text that it then shows.
func TestFlagValues(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	must.Do(t, err)
	for name, tt := range map[string]struct {
		value    func() pflag.Value
		accepted map[string]string
		refused  []string
	}{
		"duration":   {func() pflag.Value { return new(Duration) }, map[string]string{"9223372036": "2562047h47m16s", "90": "1m30s", "1ns": "1ns"}, []string{"9223372037", "0s", "0", "-1s"}},
		"size":       {func() pflag.Value { return new(Size) }, map[string]string{"8388607TiB": "8388607TiB", "1": "1"}, []string{"8388608TiB", "0"}},
		"count":      {func() pflag.Value { return new(Count) }, map[string]string{"1": "1"}, []string{"0"}},
		"processors": {func() pflag.Value { return new(Processors) }, map[string]string{"0.01": "0.01", "1048576": "1048576", "2.50": "2.5"}, []string{"0.0099", "1048577"}},
		"key=value":  {func() pflag.Value { return new(KeyValues) }, map[string]string{"a=b=c": "a=b=c", "a=": "a="}, []string{"a", "=a", "a=\x00"}},
		"engine":     {func() pflag.Value { return new(Engine) }, map[string]string{"room": "room", "wasm": "wasm"}, []string{"kubernetes", "", "other"}},
		"own engine": {func() pflag.Value { return new(OwnEngine) }, map[string]string{"room": "room", "kubernetes": "kubernetes"}, []string{"", "other"}},
		"isolation":  {func() pflag.Value { return new(Isolation) }, map[string]string{"full": "full", "restricted": "restricted", "none": "none"}, []string{"", "half"}},
		"path":       {func() pflag.Value { return new(path) }, map[string]string{"/a/../b": "/b", "c": filepath.Join(here, "c")}, nil},
		"at least":   {func() pflag.Value { return &atLeast[Size]{new(Size), 1 << 20} }, map[string]string{"1MiB": "1MiB", "2g": "2GiB"}, []string{"1048575", "x"}},
		"fewest":     {func() pflag.Value { return &atLeast[Count]{new(Count), 16} }, map[string]string{"16": "16"}, []string{"15", "-1"}},
		"volume":     {func() pflag.Value { return new(volumeMounts) }, map[string]string{"data:/data": ""}, []string{"data", ":/data", "data:data", "data:"}},
		"requests":   {func() pflag.Value { return new(hostRequests) }, map[string]string{"GET a.test/x": ""}, []string{"", "GET", "GET a.test:80", "GET a.test/a b", "GET /x"}},
		"pools":      {func() pflag.Value { return new(pools) }, map[string]string{"base=0": "base=0", "base=1000": "base=1000"}, []string{"base=-1", "base=1001", "=1", "base", "base=x"}},
		"templates": {
			func() pflag.Value { return new(imageTemplates) }, map[string]string{"tools_2-a=python:3": "tools_2-a=python:3"},
			[]string{"Tools=python:3", "=python:3", "tools=", "tools", "tools=a b", "base=python:3"},
		},
	} {
		if got := tt.value().String(); got != "" {
			t.Errorf("%s: a flag without a value shows %q", name, got)
		}
		for text, want := range tt.accepted {
			value := tt.value()
			if err := value.Set(text); err != nil || value.String() != want {
				t.Errorf("%s %q: got %q and error %v, want %q", name, text, value, err, want)
			}
		}
		for _, text := range tt.refused {
			if err := tt.value().Set(text); err == nil {
				t.Errorf("%s %q: got no error", name, text)
			}
		}
	}
	var labels KeyValues
	for _, text := range []string{"b=2", "a=1", "b=3"} {
		must.Do(t, labels.Set(text))
	}
	base := map[string]string{"a": "0", "c": "4"}
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "3", "c": "4"}, labels.Over(base)); diff != "" || labels.String() != "a=1,b=3" || base["a"] != "0" {
		t.Errorf("got %s, and over %v (-want +got):\n%s", &labels, base, diff)
	}
}

// TestRequestsOfHosts checks the parts of the requests to hosts.
func TestRequestsOfHosts(t *testing.T) {
	t.Parallel()
	var got hostRequests
	for _, value := range []string{" get,Post  a.test/x/** ", "PUT a.test", "HEAD b.test/"} {
		must.Do(t, got.Set(value))
	}
	want := hostRequests{"a.test": {{Methods: []string{"GET", "POST"}, Path: "/x/**"}, {Methods: []string{"PUT"}}}, "b.test": {{Methods: []string{"HEAD"}, Path: "/"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var volumes volumeMounts
	must.Do(t, volumes.Set("data:/data"))
	must.Do(t, volumes.Set("more:/m:n"))
	if diff := cmp.Diff(volumeMounts{{Name: "data", Path: "/data"}, {Name: "more", Path: "/m:n"}}, volumes); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
}

// TestResourceFlags checks which of the flags count, what they pass to another process, and the settings of a cloud and of a sandbox.
func TestResourceFlags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args                     string
		first, ofCloud, ofOthers string // the names of the flags
		arguments                string
		settings                 []string
		sandbox                  int // options of the new sandbox
	}{
		{args: ""},
		{"--memory 2g --disk 1g --cpu 1.5", "memory", "", "memory", "--memory 2GiB --cpus 1.5 --disk 1GiB", []string{"MemoryBytes:2147483648", "CPUs:1.5", "DiskBytes:1073741824"}, 1},
		{"--memory 16MiB", "memory", "", "memory", "--memory 16MiB", []string{"MemoryBytes:16777216"}, 1},
		{"--pids 16", "pids", "pids", "pids", "--pids 16", []string{"MaxProcesses:16"}, 0},
		{"--isolation none --cpus 2", "cpus", "isolation", "cpus", "--cpus 2 --isolation none", []string{"isolation:none", "CPUs:2"}, 1},
		{"--engine wasm", "", "", "", "", []string{"engine:wasm"}, 0},
		{"--runsc /r --pyodide-dist /p", "runsc", "runsc", "runsc", "--runsc /r --pyodide-dist /p", []string{"/r", "PyodideDist:/p"}, 0},
	} {
		for _, ofSandbox := range []bool{true, false} {
			r := ResourceFlags{ofSandbox: ofSandbox}
			parsed(t, r.Add, strings.Fields(tt.args)...)
			name := func(flag *pflag.Flag) string {
				if flag == nil {
					return ""
				}
				return flag.Name
			}
			ofCloud := tt.ofOthers
			if ofSandbox {
				ofCloud = tt.ofCloud
			}
			if got := []string{name(r.first()), name(r.firstOfCloud()), strings.Join(r.Arguments(), " ")}; !cmp.Equal(got, []string{tt.first, ofCloud, tt.arguments}) {
				t.Errorf("%s, of a sandbox %v: got %q, want %q, %q and %q", tt.args, ofSandbox, got, tt.first, ofCloud, tt.arguments)
			}
			for _, want := range tt.settings {
				if got := settingsOf(r.Options()...); !strings.Contains(got, want) {
					t.Errorf("%s: got the settings %s, want %s in them", tt.args, got, want)
				}
			}
			if got := len(r.sandboxOptions()); got != tt.sandbox {
				t.Errorf("%s: got %d options of a sandbox, want %d", tt.args, got, tt.sandbox)
			}
			if r.started = true; r.sandboxOptions() != nil {
				t.Errorf("%s: a sandbox of a cloud that was started with the limits has options", tt.args)
			}
		}
	}
	r := ResourceFlags{mounts: &hostMounts{{Dir: "/a", Path: "/x"}, {Dir: "/b", Path: "/y", Writable: true}}}
	if got := strings.Join(r.Arguments(), " "); got != "--allow-mount /a --allow-mount /b:rw" {
		t.Errorf("the mounts are passed as %q", got)
	}
	if got, want := settingsOf(r.Options()...), settingsOf(append(new(ResourceFlags).Options(), local.WithAllowedMounts("/a"), local.WithWritableMounts("/b"))...); got != want {
		t.Errorf("got the settings %s, want %s", got, want)
	}
	set := func(add func(*cobra.Command), args ...string) error {
		cmd := &cobra.Command{}
		add(cmd)
		return cmd.ParseFlags(args)
	}
	for _, args := range []string{"--memory=16777215", "--disk=1048575", "--pids=15", "--cpus=0", "--engine=x", "--isolation=x"} {
		if err := set(new(ResourceFlags).Add, args); err == nil {
			t.Errorf("%s: got no error", args)
		}
	}
	for _, name := range []string{"engine", "isolation"} {
		if complete, ok := parsed(t, new(ResourceFlags).Add).GetFlagCompletionFunc(name); !ok {
			t.Errorf("--%s has no completion", name)
		} else if values, _ := complete(nil, nil, ""); len(values) < 3 {
			t.Errorf("--%s completes to %q", name, values)
		}
	}
}

// TestSizesOfRunningSandboxes checks the flags for new resources, and the most that a sandbox gets.
func TestSizesOfRunningSandboxes(t *testing.T) {
	t.Parallel()
	var s SizeFlags
	cmd := &cobra.Command{}
	s.Add(cmd.Flags())
	for _, args := range []string{"--memory=16777215", "--disk=1048575"} {
		if cmd.ParseFlags([]string{args}) == nil {
			t.Errorf("%s: got no error", args)
		}
	}
	must.Do(t, cmd.ParseFlags([]string{"--cpu=0.5", "--memory=16m", "--disk=1m"}))
	if got, want := s.Resources(), (sandbox.Resources{CPUs: 0.5, MemoryBytes: 16 << 20, DiskBytes: 1 << 20}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for args, want := range map[string]string{"": "", "--max-cpus=2": "--max-cpus 2", "--max-memory=16m": "--max-memory 16MiB", "--max-cpus=1 --max-memory=1g": "--max-cpus 1 --max-memory 1GiB"} {
		var m MostFlags
		parsed(t, func(cmd *cobra.Command) { m.Add(cmd.Flags()) }, strings.Fields(args)...)
		if got := strings.Join(m.Arguments(), " "); got != want {
			t.Errorf("%s: got %s, want %s", args, got, want)
		}
		if got, want := settingsOf(m.Options()...), settingsOf(local.WithMaxCPUs(float64(m.CPUs)), local.WithMaxMemoryBytes(int64(m.Memory))); got != want {
			t.Errorf("%s: got the settings %s, want %s", args, got, want)
		}
	}
}

// TestKubernetesFlags checks which flags are refused without the engine or each other, and the arguments that they pass on.
func TestKubernetesFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]struct{ engine, err, arguments string }{
		"":               {"room", "", ""},
		"--image=i":      {"room", "--image is about sandboxes in pods: it needs --engine kubernetes", "--image=i"},
		"--home=1m":      {"kubernetes", "", "--home=1MiB"},
		"--pool=base=2":  {"", "--pool is about sandboxes in pods", "--pool=base=2"},
		"--pool=base=3":  {"kubernetes", "add --secret-file FILE", "--pool=base=3"},
		"--template=a=b": {"docker", "--template is about", "--template=a=b"},
		"--secret-file=/s --template=a=b --pool=a=1": {"kubernetes", "", "--secret-file=/s --template=a=b --pool=a=1"},
		"--secret-file=/s --pool=base=1 --pool=c=2":  {"kubernetes", "--pool c=2 is for a template that does not exist: add --template c=IMAGE", "--secret-file=/s --pool=base=1 --pool=c=2"},
		"--storage-class=s":                          {"kubernetes", "--storage-class is about the volumes of --home", "--storage-class=s"},
		"--storage-class=s --home=2m":                {"kubernetes", "", "--home=2MiB --storage-class=s"},
		"--kubeconfig=/k --context=c --namespace=n --program-image=p --runtime-class=r --trust-network-policy": {
			"kubernetes", "", "--kubeconfig=/k --context=c --namespace=n --program-image=p --runtime-class=r --trust-network-policy=true",
		},
	} {
		var k KubernetesFlags
		cmd := parsed(t, func(cmd *cobra.Command) {
			k.Add(cmd)
			k.AddSecret(cmd)
			k.AddTemplates(cmd)
			k.AddPools(cmd)
		}, strings.Fields(args)...)
		if err := k.Check(cmd, want.engine); (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%s with %s: got error %v, want %q", args, want.engine, err, want.err)
		}
		if got := strings.Join(k.Arguments(), " "); got != want.arguments {
			t.Errorf("%s: passes on %s, want %s", args, got, want.arguments)
		}
		o := k.Options()
		for name, value := range map[string]string{"kubeconfig": o.Kubeconfig, "secret-file": o.SecretFile, "context": o.Context, "image": o.Image, "storage-class": o.StorageClass} {
			if got := cmd.Flags().Lookup(name).Value.String(); got != value {
				t.Errorf("%s: the option of --%s is %q, want %q", args, name, value, got)
			}
		}
		if o.HomeBytes != int64(k.home) || len(o.Templates) != len(k.templates) || len(o.Pools) != len(k.pools) {
			t.Errorf("%s: got the options %+v", args, o)
		}
	}
	var twice pools
	var same imageTemplates
	for i, refused := range []bool{false, true} {
		if err := twice.Set(fmt.Sprintf("a=%d", i)); (err != nil) != refused {
			t.Errorf("pool %d of a template: got error %v", i, err)
		}
		if err := same.Set(fmt.Sprintf("a=b%d", i)); (err != nil) != refused {
			t.Errorf("image %d of a template: got error %v", i, err)
		}
	}
}

// TestAbsoluteKubeconfig checks that each path becomes absolute, and that nothing is set that was not.
func TestAbsoluteKubeconfig(t *testing.T) {
	here, err := os.Getwd()
	must.Do(t, err)
	for before, want := range map[string]string{"": "", "/a": "/a", "a": here + "/a", "/a::b": "/a::" + here + "/b"} {
		t.Setenv("KUBECONFIG", before)
		must.Do(t, AbsoluteKubeconfig())
		if got := os.Getenv("KUBECONFIG"); got != want {
			t.Errorf("%s becomes %s, want %s", before, got, want)
		}
	}
	must.Do(t, os.Unsetenv("KUBECONFIG"))
	must.Do(t, AbsoluteKubeconfig())
	if got, set := os.LookupEnv("KUBECONFIG"); set {
		t.Errorf("it is set to %q", got)
	}
}

// TestOfficialNames checks that a second name of a flag sets the same value, and that both together are refused.
func TestOfficialNames(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]struct {
		value  string
		format outputFormat
		err    bool
	}{
		"--lifetime=5": {"5", outputTable, false}, "--timeout=6": {"6", outputTable, false}, "-x 7": {"7", outputTable, false}, "--timeout=6 --lifetime=5": {err: true},
		"--format=json": {"", outputJSON, false}, "-f pretty": {"", outputTable, false}, "--format=wide": {err: true},
	} {
		f := NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil)
		var value string
		ran := false
		cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { ran = true; return nil }}
		cmd.Flags().StringVar(&value, "lifetime", "", "")
		AddOfficialName(cmd, "lifetime", "timeout", "x")
		f.AddOfficialFormat(cmd, "f")
		for _, name := range []string{"timeout", "format"} {
			if !cmd.Flags().Lookup(name).Hidden {
				t.Errorf("help shows --%s", name)
			}
		}
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.Execute(); (err != nil) != want.err || ran == want.err {
			t.Errorf("%s: got error %v, ran %v", args, err, ran)
		}
		if !want.err && (value != want.value || f.flags.output != want.format) {
			t.Errorf("%s: got %q and the format %s, want %q and %s", args, value, f.flags.output, want.value, want.format)
		}
	}
}

// TestCompletionOfAMissingFlag checks that a mistake in a command's own code does not stay unseen.
func TestCompletionOfAMissingFlag(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("the values of a flag that is missing were accepted")
		}
	}()
	complete(&cobra.Command{}, "missing", nil)
}
