//go:build !linux

package doctor

import (
	"context"
	"fmt"
	"runtime"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// mend refuses, because only Linux has AppArmor.
func mend(context.Context, *cmdutil.Factory, func(context.Context, string) error) (fixView, error) {
	return fixView{}, fmt.Errorf("mend the isolation: --fix loads a profile of AppArmor, which Linux has and %s does not", runtime.GOOS)
}
