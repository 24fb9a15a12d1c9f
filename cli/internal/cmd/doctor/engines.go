package doctor

import (
	"fmt"
	"strings"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// checkEngines says of each engine what its sandboxes have on this machine, and what not.
// That an engine other than the cloud's own is not there is no fault of the machine.
func checkEngines(cloud *local.Cloud, own local.Report) []check {
	var checks []check
	for _, engine := range local.Engines() {
		c := check{Name: string(engine) + " engine", Status: checkOK}
		report, err := own, error(nil)
		if engine != own.Engine {
			report, err = cloud.EngineReport(engine)
		}
		if err != nil {
			c.Detail = "not there: " + cmdutil.Message(err)
		} else {
			c.Detail, c.Hint = promises(report)
		}
		checks = append(checks, c)
	}
	return checks
}

// promises says what the sandboxes of an engine have, and why they have not got the rest.
func promises(report local.Report) (has, reasons string) {
	var there, missing, why []string
	for _, p := range report.Promises {
		if p.Missing == "" {
			there = append(there, p.Feature)
			continue
		}
		missing, why = append(missing, p.Feature), append(why, fmt.Sprintf("no %s: %s", p.Feature, p.Missing))
	}
	has = strings.Join(there, "; ")
	if len(missing) > 0 {
		has += ". Not: " + strings.Join(missing, "; ")
	}
	return has, strings.Join(why, "; ")
}
