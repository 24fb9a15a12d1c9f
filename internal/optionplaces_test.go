package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// optionPlaces lists the calls that take options, with %s for one, and the kinds of options
// that compile there.
var optionPlaces = map[string][]string{
	`sandbox.NewClient(%s)`:               {"client"},
	`sandbox.WithOptions(%s)`:             {"client"},
	`sandbox.WithDefaults(%s)`:            {"client", "handle", "create"},
	`sandbox.Create(nil, %s)`:             {"client", "handle", "create"},
	`sandbox.Use(nil, nil, %s)`:           {"client", "handle", "create"},
	`client.Create(nil, %s)`:              {"client", "handle", "create"},
	`client.GetOrCreate(nil, "name", %s)`: {"client", "handle", "create"},
	`client.NewPool(nil, %s)`:             {"client", "handle", "create"},
	`sandbox.Connect(nil, "id", %s)`:      {"client", "handle", "connect"},
	`client.Connect(nil, "id", %s)`:       {"client", "handle", "connect"},
}

// optionKinds lists a call of each function that makes an option, and the option's kind.
var optionKinds = map[string]string{
	`cloud.Option()`:                                   "client",
	`sandbox.WithAPIKey("")`:                           "client",
	`sandbox.WithAPIURL("")`:                           "client",
	`sandbox.WithDefaults()`:                           "client",
	`sandbox.WithDialContext(nil)`:                     "client",
	`sandbox.WithDomain("")`:                           "client",
	`sandbox.WithEnvFile("")`:                          "client",
	`sandbox.WithInterceptors()`:                       "client",
	`sandbox.WithLogger(nil)`:                          "client",
	`sandbox.WithOptions()`:                            "client",
	`sandbox.WithMaxRetries(0)`:                        "client",
	`sandbox.WithSandboxURL("")`:                       "client",
	`sandbox.WithTrace(sandbox.Trace{})`:               "client",
	`sandbox.WithTransport(nil)`:                       "client",
	`sandbox.WithUserAgent("")`:                        "client",
	`sandbox.WithVolumeURL("")`:                        "client",
	`sandbox.WithAsk(nil)`:                             "handle",
	`sandbox.WithCodeTransport("")`:                    "handle",
	`sandbox.WithExpiry(sandbox.Expiry{})`:             "handle",
	`sandbox.WithPackageIndex(sandbox.PackageIndex{})`: "handle",
	`sandbox.WithPipCredentials()`:                     "handle",
	`sandbox.WithWheelCache("", 0)`:                    "handle",
	`sandbox.WithEnvs(nil)`:                            "create",
	`sandbox.WithHTTPSPorts()`:                         "create",
	`sandbox.WithInternet(false)`:                      "create",
	`sandbox.WithMCP(nil)`:                             "create",
	`sandbox.WithMetadata(nil)`:                        "create",
	`sandbox.WithMount(sandbox.Mount{})`:               "create",
	`sandbox.WithNetwork(sandbox.Network{})`:           "create",
	`sandbox.WithPrivateTraffic()`:                     "create",
	`sandbox.WithRequestHost("")`:                      "create",
	`sandbox.WithImage("")`:                            "create",
	`sandbox.WithResources(sandbox.Resources{})`:       "create",
	`sandbox.WithTemplate("")`:                         "create",
	`sandbox.WithVolume("", "")`:                       "create",
	`sandbox.WithReboot()`:                             "connect",
}

// TestOptionPlaces checks that an option compiles only in calls in which it has an effect.
func TestOptionPlaces(t *testing.T) {
	t.Parallel()
	known := importedPackages{}
	for _, p := range publicPackages(t) {
		known[p.Path()] = p
	}
	for option, kind := range optionKinds {
		for place, kinds := range optionPlaces {
			call := fmt.Sprintf(place, option)
			err := compile(t, known, call)
			switch fits := slices.Contains(kinds, kind); {
			case fits && err != nil:
				t.Errorf("%s does not compile: %v", call, err)
			case !fits && (err == nil || !strings.Contains(err.Error(), "does not implement")):
				t.Errorf("%s: got %v, want that it does not compile because %s is no option of that place", call, err, option)
			}
		}
	}
	for _, name := range known[module+"/sandbox"].Scope().Names() {
		listed := false
		for option := range optionKinds {
			listed = listed || strings.HasPrefix(option, "sandbox."+name+"(")
		}
		if strings.HasPrefix(name, "With") && !listed {
			t.Errorf("add sandbox.%s to optionKinds", name)
		}
	}
}

// compile type-checks a program that makes a call.
func compile(t *testing.T, known types.Importer, call string) error {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "call.go", `package call
import (
	"`+module+`/sandbox"
	"`+module+`/sandbox/local"
)
func _(client *sandbox.Client, cloud *local.Cloud) { `+call+` }
`, 0)
	must.Do(t, err)
	_, err = (&types.Config{Importer: known}).Check("call", files, []*ast.File{file}, nil)
	return err
}

// importedPackages has packages by their paths.
type importedPackages map[string]*types.Package

func (p importedPackages) Import(path string) (*types.Package, error) {
	if p[path] == nil {
		return nil, fmt.Errorf("%s is not public", path)
	}
	return p[path], nil
}
