package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// checkEngines reports, for each engine, the features that it promises for sandboxes on this
// machine, and the features that it does not promise.
func checkEngines(cloud *local.Cloud, own local.Report) []check {
	var checks []check
	engines := local.Engines()
	if !slices.Contains(engines, own.Engine) { // kubernetes, which only one program has
		engines = append(engines, own.Engine)
	}
	for _, engine := range engines {
		report, err := own, error(nil)
		if engine != own.Engine {
			report, err = cloud.EngineReport(engine)
		}
		checks = append(checks, checkEngine(engine, report, err))
	}
	return checks
}

// checkEngine reports the promises of an engine's report. If err is set, the result is checkAbsent:
// a missing engine is no fault of the machine.
func checkEngine(engine local.Engine, report local.Report, err error) check {
	c := check{Name: string(engine) + " engine", Status: checkOK}
	if err != nil {
		c.Status, c.Detail = checkAbsent, cmdutil.Message(err)
		return c
	}
	var kept, missing, why []string
	for _, p := range report.Promises {
		if p.Missing == "" {
			kept = append(kept, p.Feature)
			continue
		}
		missing, why = append(missing, p.Feature), append(why, fmt.Sprintf("%s (%s)", p.Feature, p.Missing))
	}
	c.Detail = "Promised: " + strings.Join(kept, "; ") + "."
	if len(missing) > 0 {
		c.Detail += " Not promised: " + strings.Join(missing, "; ") + "."
		c.Hint = "not promised: " + strings.Join(why, "; ")
	}
	return c
}
