package realservice

import (
	"embed"

	"github.com/e2bctl/e2bctl/internal/pinned"
)

//go:embed requirements.txt
var requirements embed.FS

// Packages are what the stand-in needs of a package index: a Jupyter server with its kernel.
var Packages = pinned.Python("realservice", requirements)
