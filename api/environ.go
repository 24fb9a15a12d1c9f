package api

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/joho/godotenv"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// The variables that [FromEnv] reads.
const (
	EnvAPIKey     = "E2B_API_KEY"
	EnvAPIURL     = "E2B_API_URL"
	EnvDomain     = "E2B_DOMAIN"
	EnvSandboxURL = "E2B_SANDBOX_URL"
	EnvVolumeURL  = "E2B_VOLUME_API_URL"
)

const defaultDomain = "e2b.app"

// fromEnv fills in what is not set yet.
func (s *settings) fromEnv() error {
	variables := []struct {
		name string
		to   *setting
	}{{EnvAPIKey, &s.key}, {EnvAPIURL, &s.baseURL}, {EnvDomain, &s.domain}, {EnvSandboxURL, &s.sandboxURL}, {EnvVolumeURL, &s.volumeURL}}
	missing := false
	for _, v := range variables {
		if value := os.Getenv(v.name); v.to.value == "" && value != "" {
			*v.to = setting{value: value, from: fromEnvironment}
		}
		missing = missing || v.to.value == ""
	}
	if !missing {
		return nil
	}
	file, err := s.readEnvFile()
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
		base = s.domain.from // which it is derived from
	}
	return Sources{s.describe(s.key.from), s.describe(base), s.describe(s.domain.from), s.describe(s.sandboxURL.from), s.describe(s.volumeURL.from)}
}

func (s *settings) envFileName() string {
	if s.envFileNamed {
		return s.envFile
	}
	return ".env"
}

// readEnvFile reads the file without changing the environment. The parser's
// errors quote the file, which holds secrets, so they are not passed on.
func (s *settings) readEnvFile() (map[string]string, error) {
	name := s.envFileName()
	if name == "" {
		return nil, nil
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) && !s.envFileNamed {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("api: read settings: %w", err)
	}
	defer f.Close()
	// A directory with that name is a Python virtual environment.
	if info, err := f.Stat(); err == nil && info.IsDir() && !s.envFileNamed {
		return nil, nil
	}
	values, err := godotenv.Parse(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("api: read settings: %s has lines that are not of the form KEY=value; correct them, or name another file (WithEnvFile)", name)
	}
	return values, nil
}

// parseURL checks an address. It never prints any part that may be a password.
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
