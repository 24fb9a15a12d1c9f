package api

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// These are the variables that [FromEnv] reads.
const (
	EnvAPIKey     = "E2B_API_KEY"
	EnvAPIURL     = "E2B_API_URL"
	EnvDomain     = "E2B_DOMAIN"
	EnvSandboxURL = "E2B_SANDBOX_URL"
	EnvVolumeURL  = "E2B_VOLUME_API_URL"
)

const defaultDomain = "e2b.app"

// fromEnv takes the settings that have no value yet from the environment, and then from the
// settings file.
func (s *settings) fromEnv() error {
	variables := []struct {
		name string
		to   *setting
	}{{EnvAPIKey, &s.key}, {EnvAPIURL, &s.baseURL}, {EnvDomain, &s.domain}, {EnvSandboxURL, &s.sandboxURL}, {EnvVolumeURL, &s.volumeURL}}
	var missing []string
	for _, v := range variables {
		if value := os.Getenv(v.name); v.to.value == "" && value != "" {
			*v.to = setting{value: value, from: fromEnvironment}
		}
		if v.to.value == "" {
			missing = append(missing, v.name)
		}
	}
	if len(missing) == 0 && !s.envFileNamed { // one that is named must exist
		return nil
	}
	file, err := s.readEnvFile(missing)
	if err != nil {
		return err
	}
	from := fromFile
	if s.envFileNamed {
		from = fromNamedFile
	}
	for _, v := range variables {
		if value := file[v.name]; v.to.value == "" && value != "" {
			*v.to = setting{value: value, from: from}
		}
	}
	for _, v := range variables[1:] {
		if v.to.from == fromFile && s.key.from > fromFile {
			return fmt.Errorf("%w: %s is from %s, but %s from %s; set %s there too, remove it from the file, or name the file (WithEnvFile)",
				ErrUntrustedAddress, v.name, s.envFileName(), EnvAPIKey, s.describe(s.key.from), v.name)
		}
	}
	return nil
}

func (s *settings) describe(from source) string {
	switch from {
	case fromProgram:
		return "the program"
	case fromEnvironment:
		return "the environment"
	case fromNamedFile, fromFile:
		return s.envFileName()
	}
	return "the default"
}

// Sources names where each setting of a client comes from: "the program", "the
// environment", "the default", or the path of a settings file.
type Sources struct{ APIKey, BaseURL, Domain, SandboxURL, VolumeURL string }

func (s *settings) sources() Sources {
	base := s.baseURL.from
	if base == fromDefault {
		base = s.domain.from // the base URL is derived from the domain
	}
	return Sources{s.describe(s.key.from), s.describe(base), s.describe(s.domain.from), s.describe(s.sandboxURL.from), s.describe(s.volumeURL.from)}
}

func (s *settings) envFileName() string {
	if s.envFileNamed {
		return s.envFile
	}
	return ".env"
}

// parseURL checks and parses an address. Its errors never contain a part that may be a
// password.
func parseURL(what, raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("api: %s is not an address of the form https://host[:port][/path]", what)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

func validateDomain(domain string) error {
	if u, err := url.Parse("https://api." + domain); err != nil || u.Host != "api."+domain || u.Port() == "" && strings.Contains(domain, ":") {
		return fmt.Errorf("api: the domain %q is not of the form name[:port]", clip.Line(domain, 64))
	}
	return nil
}
