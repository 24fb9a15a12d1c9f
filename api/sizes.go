package api

import (
	"encoding/json"
	"time"
)

// sizes contains the sizes of a sandbox in MiB, the unit of the API. The exported types of this
// package have sizes in bytes.
type sizes struct {
	MemoryMB   int64 `json:"memoryMB"`
	DiskSizeMB int64 `json:"diskSizeMB"`
}

func (s sizes) bytes() (memory, disk int64) { return s.MemoryMB << 20, s.DiskSizeMB << 20 }

// mebibytes returns a number of bytes in MiB, rounded up.
func mebibytes(bytes int64) int64 {
	if bytes <= 0 {
		return bytes // the service refuses a negative size
	}
	return (bytes-1)>>20 + 1
}

// sandboxJSON is the JSON of a sandbox in the API. Lists of sandboxes are decoded into sandboxJSON
// directly, because SandboxInfo has an UnmarshalJSON method. For a type with this method,
// encoding/json reads the text twice as often.
type sandboxJSON struct {
	sandboxFields
	sizes
	IdleSeconds int64 `json:"idleTimeout"`
}

// sandboxFields has the fields of SandboxInfo, without its method UnmarshalJSON.
type sandboxFields SandboxInfo

func (s *sandboxJSON) info() SandboxInfo {
	info := SandboxInfo(s.sandboxFields)
	info.MemoryBytes, info.DiskBytes = s.bytes()
	info.IdleTimeout = time.Duration(s.IdleSeconds) * time.Second
	return info
}

// UnmarshalJSON decodes the JSON of the API, whose sizes are in MiB and whose times are in seconds.
func (i *SandboxInfo) UnmarshalJSON(text []byte) error {
	decoded := sandboxJSON{sandboxFields: sandboxFields(*i)}
	err := json.Unmarshal(text, &decoded)
	*i = decoded.info()
	return err
}

// UnmarshalJSON decodes the JSON of the API, whose sizes are in MiB.
func (t *Template) UnmarshalJSON(text []byte) error {
	type plain Template
	said := struct {
		*plain
		sizes
	}{plain: (*plain)(t)}
	err := json.Unmarshal(text, &said)
	t.MemoryBytes, t.DiskBytes = said.bytes()
	return err
}

// UnmarshalJSON decodes the JSON of the API, whose sizes are in MiB.
func (b *TemplateBuild) UnmarshalJSON(text []byte) error {
	type plain TemplateBuild
	said := struct {
		*plain
		sizes
	}{plain: (*plain)(b)}
	err := json.Unmarshal(text, &said)
	b.MemoryBytes, b.DiskBytes = said.bytes()
	return err
}

// UnmarshalJSON decodes the JSON of the API. Without it, the embedded Template's method would
// apply and ignore the builds.
func (d *TemplateDetail) UnmarshalJSON(text []byte) error {
	var more struct {
		Builds []*TemplateBuild `json:"builds"`
	}
	err := json.Unmarshal(text, &more)
	if err == nil {
		d.Builds, err = values("a build", more.Builds)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &d.Template)
}
