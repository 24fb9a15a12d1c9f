package e2e

import (
	"embed"

	"github.com/e2bctl/e2bctl/internal/pinned"
)

//go:embed testdata/headers/requirements.txt testdata/kernels/requirements.txt
var pins embed.FS

// The packages that the tests need from a package index.
var (
	// headerClients are HTTP clients in Python.
	headerClients = pinned.Python("headers", pinned.Folder(pins, "testdata/headers"))
	// kernelWheels are the kernels of Jupyter that tests install in sandboxes.
	kernelWheels = pinned.Wheels("kernel-wheels", pinned.Folder(pins, "testdata/kernels"))
)

// Sets lists all sets of packages, for make deps.
var Sets = []pinned.Set{headerClients, kernelWheels}
