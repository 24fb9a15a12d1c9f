package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"gopkg.in/ini.v1"
)

// maxCertificates bounds the file of certificates that goes with an
// installation; the bundle of a system has a quarter of a megabyte.
const maxCertificates = 4 << 20

// pipSettings is what this machine's pip knows of where packages come from: a
// sandbox that installs for this program should find what this program finds.
// Proxies are left out, for the service decides how a sandbox reaches the
// outside.
type pipSettings struct {
	envs map[string]string
	// certificates is the content of the bundle to trust; nil is pip's own.
	certificates []byte
}

// pipSettingNames maps the variables of pip's environment to the names that
// its configuration files have for them.
var pipSettingNames = map[string][]string{
	"PIP_INDEX_URL":       {"index-url"},
	"PIP_EXTRA_INDEX_URL": {"extra-index-url"},
	"PIP_TRUSTED_HOST":    {"trusted-host"},
	"PIP_DEFAULT_TIMEOUT": {"timeout", "default-timeout"},
	"PIP_RETRIES":         {"retries"},
	"PIP_CERT":            {"cert"},
}

// readPipSettings reads the environment and, for what is not set there, pip's
// configuration files; what index has goes over both. Addresses with credentials
// of this machine are left out unless they are asked for: code in the sandbox can
// read them.
func readPipSettings(index *PackageIndex, credentials bool) (pipSettings, error) {
	files, err := readPipFiles()
	if err != nil {
		return pipSettings{}, err
	}
	s := pipSettings{envs: map[string]string{}}
	for variable := range pipSettingNames {
		value, ok := os.LookupEnv(variable)
		if !ok {
			value = files[variable]
		}
		if !credentials {
			value = withoutCredentials(value)
		}
		if value != "" {
			s.envs[variable] = value
		}
	}
	path := s.envs["PIP_CERT"]
	delete(s.envs, "PIP_CERT")
	if path != "" && (index == nil || index.Certificates == nil) {
		if s.certificates, err = readCertificates(path); err != nil {
			return pipSettings{}, err
		}
	}
	index.settings(&s)
	return s, nil
}

// readPipFiles gives the settings of pip's configuration files by the name of
// their variable. Later files win, and in each what is for install alone.
func readPipFiles() (map[string]string, error) {
	found := map[string]string{}
	for _, path := range pipFiles() {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // most machines have none of them
		}
		file, err := ini.LoadSources(ini.LoadOptions{AllowPythonMultilineValues: true, IgnoreInlineComment: true, SkipUnrecognizableLines: true}, content)
		if err != nil {
			return nil, fmt.Errorf("sandbox: read pip's settings in %s: %w", path, err)
		}
		for _, section := range []string{"global", "install"} {
			for variable, names := range pipSettingNames {
				for _, name := range names {
					if key := file.Section(section).Key(name); key.String() != "" {
						found[variable] = strings.Join(strings.Fields(key.String()), " ")
					}
				}
			}
		}
	}
	return found, nil
}

// pipFiles are the places pip looks at on this system, least important first.
func pipFiles() []string {
	named, ok := os.LookupEnv("PIP_CONFIG_FILE")
	if ok && named == os.DevNull {
		return nil
	}
	var files []string
	home, _ := os.UserHomeDir() // without one there is no file in it
	switch runtime.GOOS {
	case "windows":
		files = append(files, filepath.Join(os.Getenv("PROGRAMDATA"), "pip", "pip.ini"),
			filepath.Join(home, "pip", "pip.ini"), filepath.Join(os.Getenv("APPDATA"), "pip", "pip.ini"))
	default:
		files = append(files, "/etc/xdg/pip/pip.conf", "/etc/pip.conf", filepath.Join(home, ".pip", "pip.conf"))
		if config, err := os.UserConfigDir(); err == nil {
			files = append(files, filepath.Join(config, "pip", "pip.conf"))
		}
	}
	if ok && named != "" {
		files = append(files, named)
	}
	return files
}

// withoutCredentials drops the words of a setting that are addresses with a
// user in them.
func withoutCredentials(value string) string {
	var kept []string
	for _, word := range strings.Fields(value) {
		address, err := url.Parse(word)
		if err != nil || address.User != nil {
			continue
		}
		kept = append(kept, word)
	}
	return strings.Join(kept, " ")
}

func readCertificates(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("sandbox: read the certificates that pip's settings name: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxCertificates {
		return nil, fmt.Errorf("sandbox: the certificates that pip's settings name, %s: not a file of at most %d bytes", path, maxCertificates)
	}
	content, err := os.ReadFile(path)
	if err == nil {
		err = checkCertificates(content)
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox: read the certificates that pip's settings name, %s: %w", path, err)
	}
	return content, nil
}

// checkCertificates keeps a file that was named by mistake, a key for instance,
// out of the sandbox.
func checkCertificates(content []byte) error {
	switch {
	case len(content) > maxCertificates:
		return fmt.Errorf("certificates of more than %d bytes", maxCertificates)
	case !bytes.Contains(content, []byte("-----BEGIN CERTIFICATE-----")):
		return errors.New("there is no certificate in PEM in it")
	}
	return nil
}

// masks gives what to replace in what pip says, and by what: all that tells a
// user or a password of an address. pip itself masks most of it.
func (s pipSettings) masks() *strings.Replacer {
	var pairs []string
	for _, variable := range []string{"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_PROXY"} {
		for word := range strings.FieldsSeq(s.envs[variable]) {
			address, err := url.Parse(word)
			if err != nil || address.User == nil {
				continue
			}
			written, _, _ := strings.Cut(word[strings.Index(word, "//")+2:], "@")
			password, _ := address.User.Password()
			for _, secret := range []string{written, address.User.String(), address.User.Username() + ":" + password, password} {
				if len(secret) >= minSecret {
					pairs = append(pairs, secret, "****")
				}
			}
		}
	}
	return strings.NewReplacer(pairs...)
}

// environment is that of a pip that finds its certificates at path.
func (s pipSettings) environment(path string) map[string]string {
	envs := maps.Clone(s.envs)
	maps.Copy(envs, pipEnvs)
	if s.certificates != nil {
		envs["PIP_CERT"] = path
	}
	return envs
}
