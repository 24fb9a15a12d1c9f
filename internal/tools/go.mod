// Lint and generator tools. A module of its own, so that none of them enters
// the module graph of e2bctl's users.
module github.com/e2bctl/e2bctl/internal/tools

go 1.26.0

require (
	codeberg.org/polyfloyd/go-errorlint v1.9.0
	github.com/ashanbrown/forbidigo/v2 v2.3.1
	github.com/ashanbrown/makezero/v2 v2.2.1
	github.com/bufbuild/protocompile v0.14.1
	github.com/charithe/durationcheck v0.0.11
	github.com/golangci/misspell v0.8.0
	github.com/gordonklaus/ineffassign v0.2.0
	github.com/gostaticanalysis/nilerr v0.1.2
	github.com/kisielk/errcheck v1.30.0
	github.com/ldez/usetesting v0.5.0
	github.com/sivchari/containedctx v1.0.3
	github.com/sonatard/noctx v0.5.1
	github.com/timakin/bodyclose v0.0.0-20260723120731-857993a2939c
	go-simpler.org/sloglint v0.12.0
	golang.org/x/tools v0.52.0
	google.golang.org/protobuf v1.36.12
	honnef.co/go/tools v0.8.2
)

require (
	connectrpc.com/connect v1.21.1 // indirect
	github.com/BurntSushi/toml v1.6.0 // indirect
	github.com/ettle/strcase v0.2.0 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/gostaticanalysis/analysisutil v0.7.1 // indirect
	github.com/gostaticanalysis/comment v1.5.0 // indirect
	github.com/gostaticanalysis/testutil v0.5.0 // indirect
	github.com/hashicorp/go-version v1.9.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/exp/typeparams v0.0.0-20260811152304-ee035b5b010f // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	golang.org/x/tools/go/packages/packagestest v0.1.1-deprecated // indirect
)

tool (
	connectrpc.com/connect/cmd/protoc-gen-connect-go
	google.golang.org/protobuf/cmd/protoc-gen-go
)
