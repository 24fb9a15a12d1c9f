package packaging

import (
	"bytes"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// SBOM returns the list of a program's parts as a CycloneDX document. The document has
// no serial number and no time of its own, so that the same program always has the same document.
func SBOM(b *Build) ([]byte, error) {
	root := "pkg:golang/github.com/e2bctl/e2bctl@v" + b.Release()
	document := cyclonedx.NewBOM()
	document.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: root, Type: cyclonedx.ComponentTypeApplication, Name: "e2bctl", Version: b.Release(), PackageURL: root,
		Properties: &[]cyclonedx.Property{{Name: "go:os", Value: b.System}, {Name: "go:arch", Value: b.Architecture}},
	}}
	components, needs := []cyclonedx.Component{}, []string{}
	for _, m := range b.Modules {
		id := "pkg:golang/" + m.Path + "@" + m.Version
		component := cyclonedx.Component{BOMRef: id, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: id, Scope: cyclonedx.ScopeRequired}
		if m.Sum != "" {
			component.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: m.Sum}}
		}
		components, needs = append(components, component), append(needs, id)
	}
	document.Components, document.Dependencies = &components, &[]cyclonedx.Dependency{{Ref: root, Dependencies: &needs}}
	var out bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	err := encoder.Encode(document)
	return out.Bytes(), err
}
