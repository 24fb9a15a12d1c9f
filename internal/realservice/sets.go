package realservice

import (
	"embed"

	"github.com/e2bctl/e2bctl/internal/pinned"
)

//go:embed requirements.txt
var requirements embed.FS

// Packages are the packages of the stand-in: a Jupyter server with its kernel.
var Packages = pinned.Python("realservice", requirements)
